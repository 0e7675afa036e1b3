//! Debian's chromium, driven by its driver over the loopback; each test has one of its own.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use thirtyfour::common::log::LoggingPrefsLogLevel;
use thirtyfour::prelude::*;

use crate::site::PATIENCE;

/// How a page is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Looks {
    /// In pixels.
    pub width: u32,
    pub is_dark: bool,
    pub has_scripts: bool,
}

/// Each width in each scheme, and each of these with scripts and without.
pub fn all_looks() -> impl Iterator<Item = Looks> {
    (0..4).map(|at| {
        let (is_wide, is_dark) = (at & 1 == 0, at & 2 != 0);
        Looks { width: if is_wide { 1_200 } else { 320 }, is_dark, has_scripts: is_wide != is_dark }
    })
}

/// A browser, its driver, and the directory of both.
pub struct Browser {
    pub driver: WebDriver,
    process: Child,
    _directory: TempDir,
}

impl Browser {
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut process = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is missing: make test-browser installs it");
        let port = port_in(process.stdout.take().unwrap());
        let address = format!("http://127.0.0.1:{port}");
        let end = Instant::now() + PATIENCE;
        let mut tries = 1;
        // On a busy machine a browser may end while it starts. Each try has a profile of its own, as one may be damaged.
        let driver = loop {
            let profile = directory.path().join(tries.to_string());
            match WebDriver::new(&address, wanted(&profile)).await {
                Ok(driver) => break driver,
                Err(error) if Instant::now() < end => eprintln!("try {tries}: {error}"),
                Err(error) => panic!("no browser starts: {error}"),
            }
            tries += 1;
        };
        Self { driver, process, _directory: directory }
    }

    pub async fn stop(mut self) {
        self.driver.clone().quit().await.unwrap();
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// A command of the browser's own protocol.
    pub async fn tell(&self, method: &str, parameters: Value) -> Value {
        self.driver.cdp().send_raw(method, parameters).await.unwrap()
    }

    pub async fn look_as(&self, looks: Looks) {
        let Looks { width, is_dark, has_scripts } = looks;
        let size =
            json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false });
        self.tell("Emulation.setDeviceMetricsOverride", size).await;
        let scheme = if is_dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.tell("Emulation.setEmulatedMedia", media).await;
        self.tell("Emulation.setScriptExecutionDisabled", json!({ "value": !has_scripts })).await;
    }

    /// Sends the token with each request, as a browser does once it was asked for.
    pub async fn give_token(&self, token: &str) {
        // Of `ann` and the token; the program says which.
        self.tell("Network.enable", json!({})).await;
        let headers = json!({ "headers": { "Authorization": format!("Basic {token}") } });
        self.tell("Network.setExtraHTTPHeaders", headers).await;
    }

    /// What the page computes, as an expression that is evaluated beside its own scripts, whether or not those may run.
    pub async fn value(&self, expression: &str) -> Value {
        let asked = json!({ "expression": expression, "returnByValue": true });
        let answer = self.tell("Runtime.evaluate", asked).await;
        assert!(answer.get("exceptionDetails").is_none(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Goes to an address; nothing is complained of on the way.
    pub async fn go(&self, address: &str) {
        self.driver.goto(address).await.unwrap();
        self.expect_no_complaint(address).await;
    }

    /// Waits until a page is loaded of which this is true: a click may return before.
    pub async fn becomes(&self, condition: &str) {
        let end = Instant::now() + PATIENCE;
        let asked = format!("document.readyState == 'complete' && ({condition})");
        while self.value(&asked).await != true {
            assert!(Instant::now() < end, "it does not become true: {condition}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until it is at an address with this in it.
    pub async fn arrive(&self, part: &str) {
        self.becomes(&format!("location.href.includes('{part}')")).await;
    }

    /// Waits until there is what this selects.
    pub async fn see(&self, css: &str) {
        self.becomes(&format!("document.querySelector(\"{css}\") !== null")).await;
    }

    /// Neither an error on the console nor a report of what the policy forbids.
    pub async fn expect_no_complaint(&self, address: &str) {
        let mut complaints = self.driver.browser_log().await.unwrap();
        // The browser's own pages, such as that of a new tab.
        complaints.retain(|it| !it.message.starts_with("chrome://"));
        assert!(complaints.is_empty(), "{address}: {complaints:?}");
    }

    /// The roles and names of what can be reached by keyboard, as those are told who do not see it.
    pub async fn controls(&self) -> Vec<(String, String)> {
        let tree = self.tell("Accessibility.getFullAXTree", json!({})).await;
        let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
        let is_reached = |node: &Value| {
            let properties = node["properties"].as_array().cloned().unwrap_or_default();
            properties.iter().any(|it| it["name"] == "focusable" && it["value"]["value"] == true)
        };
        let text = |value: &Value| value["value"].as_str().unwrap_or_default().to_owned();
        let reached = nodes.iter().filter(|node| node["ignored"] == false && is_reached(node));
        reached.map(|node| (text(&node["role"]), text(&node["name"]))).collect()
    }
}

/// A browser without a window that keeps what it writes in this directory.
fn wanted(profile: &Path) -> Capabilities {
    let mut wanted = DesiredCapabilities::chrome();
    let data = format!("--user-data-dir={}", profile.display());
    // Root has no sandbox, and a container little shared memory.
    for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", &data] {
        wanted.add_arg(argument).unwrap();
    }
    wanted.set_browser_log_level(LoggingPrefsLogLevel::All).unwrap();
    wanted.into()
}

/// The port that the driver says it listens on.
fn port_in(out: impl std::io::Read) -> u16 {
    let mut lines = BufReader::new(out).lines();
    let line = lines.find_map(|line| {
        let line = line.unwrap();
        Some(line.split_once("started successfully on port ")?.1.trim_end_matches('.').to_owned())
    });
    line.expect("chromedriver starts").parse().unwrap()
}
