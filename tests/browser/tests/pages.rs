//! The pages in chromium: with and without scripts, at 320 pixels, in the dark, by keyboard, and for who does not see them.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;
use shiftboss_browser::browser::{Browser, Looks, all_looks};
use shiftboss_browser::site::{PATIENCE, Site, wait_until};
use thirtyfour::prelude::*;

/// `ann:` and the site's token.
const ANN: &str = "YW5uOjAxMjM0NTY3ODlhYmNkZWY=";
const USUAL: Looks = Looks { width: 1200, is_dark: false, has_scripts: true };

/// The contrast of each text on the page that is below what people need, as `TEXT RATIO`.
const LOW_CONTRAST: &str = r"(() => {
  const parse = (color) => (color.match(/[\d.]+/g) || []).map(Number);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let it = element; it; it = it.parentElement) {
      const color = parse(getComputedStyle(it).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const low = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || !element.checkVisibility() || element.closest('svg')) continue;
    const [one, other] = [luminance(parse(getComputedStyle(element).color).slice(0, 3)), luminance(ground(element))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) low.push(texts.currentNode.data.trim() + ' ' + ratio.toFixed(2));
  }
  return low;
})()";

fn texts(value: &Value) -> Vec<String> {
    let texts = value.as_array().unwrap().iter();
    texts.map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// The addresses of the page's links to other pages of ours.
async fn links(browser: &Browser, site: &Site) -> Vec<String> {
    let all = browser.value("[...document.links].map((link) => link.href.split('#')[0])").await;
    let is_ours = |link: &String| link.starts_with(&site.address) && !link.contains("raw=1");
    texts(&all).into_iter().filter(is_ours).collect()
}

/// A page is whole, whoever looks at it.
async fn is_sound(browser: &Browser, address: &str, looks: Looks) {
    let at = format!("{address} {looks:?}");
    browser.expect_no_complaint(&at).await;
    let heading = browser.value("document.querySelectorAll('main h1').length").await;
    assert_eq!(heading, 1, "{at}");
    let width = browser.value("document.documentElement.scrollWidth").await;
    assert!(width.as_u64().unwrap() <= u64::from(looks.width), "{at} is {width} wide");
    assert_eq!(texts(&browser.value(LOW_CONTRAST).await), [""; 0], "{at}");
    let twice = "(() => { const ids = [...document.querySelectorAll('[id]')].map((it) => it.id); return ids.length - new Set(ids).size; })()";
    assert_eq!(browser.value(twice).await, 0, "{at}: ids are there twice");
    for (role, name) in browser.controls().await {
        assert!(
            !name.is_empty() || role == "RootWebArea" || role == "main",
            "{at}: a {role} has no name"
        );
    }
}

/// Each page that links lead to is whole: with scripts and without, wide and narrow, bright and dark.
#[tokio::test]
#[ignore = "needs a browser: make test-browser"]
async fn every_page_is_sound_for_everybody() {
    let site = Site::new();
    let browser = Browser::start().await;
    browser.go(&site.address).await;
    let mut known = BTreeSet::from([
        site.address.clone(),
        format!("{}pause", site.address),
        format!("{}held", site.address),
        format!("{}tasks?status=dead_letter", site.address),
        format!("{}search?q=b", site.address),
    ]);
    let mut left: Vec<String> = known.iter().cloned().collect();
    while let Some(address) = left.pop() {
        for looks in all_looks() {
            browser.look_as(looks).await;
            browser.driver.goto(&address).await.unwrap();
            // Feeds and objects are no pages.
            if browser.value("document.contentType").await == "text/html" {
                is_sound(&browser, &address, looks).await;
            }
        }
        if browser.value("document.contentType").await == "text/html" {
            // Another order of the same rows is no other page.
            let all = links(&browser, &site).await.into_iter();
            let new = all.filter(|link| !link.contains("sort=") && known.insert(link.clone()));
            left.extend(new.collect::<Vec<_>>());
        }
    }
    let has = |part: &str| known.iter().any(|address| address.contains(part));
    for part in [
        "queue",
        "tasks?status=delayed",
        "fetcher?f=broken",
        "log",
        "fetchers",
        "fetcher?f=list",
        "key?k=alpha",
        "hold?k=alpha",
        "output?k=",
        "key.atom",
    ] {
        assert!(has(part), "no link leads to {part}: {known:?}");
    }
    browser.stop().await;
}

/// Who types the beginning of a key finds it, and what became of it; without scripts.
#[tokio::test]
#[ignore = "needs a browser: make test-browser"]
async fn a_key_is_searched_for() {
    let site = Site::new();
    let browser = Browser::start().await;
    browser.look_as(Looks { has_scripts: false, ..USUAL }).await;
    browser.go(&site.address).await;
    let driver = &browser.driver;
    driver.find(By::Id("q")).await.unwrap().send_keys("brav" + Key::Enter).await.unwrap();
    browser.arrive("search?q=brav").await;
    let found = driver.find_all(By::Css("main .key a")).await.unwrap();
    let mut keys = Vec::new();
    for key in &found {
        keys.push(key.text().await.unwrap());
    }
    assert_eq!(keys, ["bravado", "bravo"]);
    found[1].click().await.unwrap();
    browser.arrive("key?k=bravo").await;
    assert_eq!(driver.find(By::Css("h1")).await.unwrap().text().await.unwrap(), "bravo");
    let page = driver.find(By::Css("main")).await.unwrap().text().await.unwrap();
    assert!(page.contains("bravo") && page.contains("Last result"), "{page}");
    browser.expect_no_complaint("search").await;
    browser.stop().await;
}

/// A pause on the page is noticed by a worker, and a resume, too.
#[tokio::test]
#[ignore = "needs a browser: make test-browser"]
async fn a_pause_is_noticed_by_a_worker() {
    let site = Site::new();
    let browser = Browser::start().await;
    browser.give_token(ANN).await;
    browser.go(&site.address).await;
    let driver = &browser.driver;
    let press = async |css: &str| driver.find(By::Css(css)).await.unwrap().click().await.unwrap();
    press("a.button[href=pause]").await;
    browser.arrive("pause").await;
    press("form[action='actions/pause'] button").await;
    browser.see(".banner").await;
    let banner = driver.find(By::Css(".banner")).await.unwrap().text().await.unwrap();
    assert!(banner.starts_with("Paused"), "{banner}");
    assert_eq!(site.run(&["ask", "-t", "socket", "READY"]), "NOJOBS\n");
    press("form[action='actions/resume'] button").await;
    browser.see("a.button[href=pause]").await;
    assert!(driver.find_all(By::Css(".banner")).await.unwrap().is_empty());
    assert!(site.run(&["ask", "-t", "socket", "READY"]).starts_with("JOB "));
    browser.expect_no_complaint("pause").await;
    browser.stop().await;
}

/// A key that is held on its page is not handed out, and is listed; then it is not.
#[tokio::test]
#[ignore = "needs a browser: make test-browser"]
async fn a_key_is_held_and_unheld() {
    let site = Site::new();
    let browser = Browser::start().await;
    browser.give_token(ANN).await;
    let waiting = site.run(&["tasks", "--next", "--json", "-t", "socket"]);
    let waiting: Value = serde_json::from_str(&waiting).unwrap();
    let key = waiting["keys"][0]["key"].as_str().unwrap().to_owned();
    browser.go(&site.address).await;
    let driver = &browser.driver;
    let press = async |css: &str| driver.find(By::Css(css)).await.unwrap().click().await.unwrap();
    driver.find(By::Id("q")).await.unwrap().send_keys(&*key + Key::Enter).await.unwrap();
    browser.arrive("search?q=").await;
    press("main .key a").await;
    browser.arrive("key?k=").await;
    press("a.button[href^='hold?k=']").await;
    browser.arrive("hold?k=").await;
    driver.find(By::Id("reason")).await.unwrap().send_keys("it is broken").await.unwrap();
    press("form[action='actions/hold'] button").await;
    browser.see("form[action='actions/unhold']").await;
    let page = driver.find(By::Css("main")).await.unwrap().text().await.unwrap();
    assert!(page.contains("by ann, until") && page.contains("it is broken"), "{page}");
    assert_eq!(site.run(&["ask", "-t", "socket", "READY"]), "NOJOBS\n");
    browser.go(&format!("{}held", site.address)).await;
    let held = driver.find(By::Css("main")).await.unwrap().text().await.unwrap();
    assert!(held.contains(&key) && held.contains("it is broken"), "{held}");
    press("main .key a").await;
    browser.arrive("key?k=").await;
    press("form[action='actions/unhold'] button").await;
    wait_until("it is handed out", || {
        site.run(&["ask", "-t", "socket", "READY"]).starts_with("JOB ")
    });
    browser.expect_no_complaint("hold").await;
    browser.stop().await;
}

/// With the script a page keeps itself fresh, and does not while it was told not to; what was open stays open.
#[tokio::test]
#[ignore = "needs a browser: make test-browser"]
async fn a_page_keeps_itself_fresh() {
    let site = Site::new();
    let browser = Browser::start().await;
    browser.look_as(USUAL).await;
    browser.go(&site.address).await;
    let driver = &browser.driver;
    browser.value("document.getElementById('ended-table').open = true").await;
    assert!(!site.run(&["pause", "-t", "socket"]).is_empty());
    let end = Instant::now() + PATIENCE;
    while driver.find_all(By::Css(".banner")).await.unwrap().is_empty() {
        assert!(Instant::now() < end, "the page does not show that it is paused");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(browser.value("document.getElementById('ended-table').open").await, true);
    let stop = driver.find(By::Css("footer button")).await.unwrap();
    stop.click().await.unwrap();
    assert_eq!(stop.text().await.unwrap(), "Refresh by itself");
    browser.expect_no_complaint("refresh").await;
    browser.stop().await;
}

/// What is typed leaves rows out at once, the name of a column sorts them, and the address keeps both; without scripts a button does.
#[tokio::test]
#[ignore = "needs a browser: make test-browser"]
async fn a_listing_is_arranged() {
    let site = Site::new();
    let browser = Browser::start().await;
    let log = format!("{}log", site.address);
    let rows = async || {
        texts(
            &browser
                .value("[...document.querySelectorAll('#listing .key')].map((it) => it.innerText)")
                .await,
        )
    };
    let until = async |expected: &[&str]| {
        let end = Instant::now() + PATIENCE;
        while rows().await != expected {
            assert!(Instant::now() < end, "{expected:?}: {:?}", rows().await);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    for has_scripts in [true, false] {
        browser.look_as(Looks { has_scripts, ..USUAL }).await;
        browser.go(&log).await;
        let driver = &browser.driver;
        driver.find(By::Id("fetcher")).await.unwrap().send_keys("list").await.unwrap();
        driver.find(By::Id("text")).await.unwrap().send_keys("ALPH").await.unwrap();
        if !has_scripts {
            driver.find(By::Css("#filter button")).await.unwrap().click().await.unwrap();
        }
        until(&["alpha"]).await;
        browser.arrive("text=ALPH").await;
        let head = driver.find(By::Css("#listing thead a")).await.unwrap();
        head.click().await.unwrap();
        browser.arrive("sort=key").await;
        until(&["alpha"]).await;
        let order = browser.value("document.querySelector('#listing thead th').ariaSort").await;
        assert_eq!(order, "ascending");
    }
    browser.expect_no_complaint("arrange").await;
    browser.stop().await;
}

/// By keyboard alone: the first stop leads to the content, and each stop has a name, in the order of the page.
#[tokio::test]
#[ignore = "needs a browser: make test-browser"]
async fn everything_is_reached_by_keyboard() {
    let site = Site::new();
    let browser = Browser::start().await;
    browser.look_as(USUAL).await;
    browser.go(&site.address).await;
    let driver = &browser.driver;
    let mut stops = Vec::new();
    for _ in 0..9 {
        driver.action_chain().key_down(Key::Tab).key_up(Key::Tab).perform().await.unwrap();
        let name = "(document.activeElement.textContent.trim() || document.activeElement.name)";
        stops.push(browser.value(name).await.as_str().unwrap().to_owned());
        let outline = browser.value("getComputedStyle(document.activeElement).outlineStyle").await;
        assert_ne!(outline, "none", "{stops:?}: the focus is not seen");
    }
    let expected = [
        "To the content",
        "shiftboss",
        "Queue",
        "Next jobs",
        "Log",
        "Failed",
        "Fetchers",
        "q",
        "Search",
    ];
    assert_eq!(stops, expected);
    browser.stop().await;
}
