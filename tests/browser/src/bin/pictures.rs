//! Takes the pictures of README: `pictures ADDRESS SCREEN DIRECTORY`, of the page at that address and of a terminal to which was
//! written what SCREEN has, each light and dark. `tests/pictures.sh` calls it, and has them at work before.
#![allow(clippy::unwrap_used)] // Whoever takes pictures looks on.

use std::fmt::Write;
use std::fs;
use std::num::NonZero;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::json;
use shiftboss_browser::browser::{Browser, Looks};
use vt100::{Color, Screen};

/// Of a page, in pixels; it is as high as 800.
const PAGE_WIDTH: u32 = 1_200;
/// Of the terminal, in characters, as it was told.
const ROWS: NonZero<u16> = NonZero::new(20).unwrap();
const COLUMNS: NonZero<u16> = NonZero::new(110).unwrap();
/// Behind it the screen is given back as it was before.
const LEAVES: &str = "\u{1b}[?1049l";

/// What a terminal draws with: its ground, its text, and the eight colours and their bright ones.
struct Palette {
    ground: &'static str,
    text: &'static str,
    colours: [&'static str; 16],
}

const LIGHT: Palette = Palette {
    ground: "#ffffff",
    text: "#24292f",
    colours: [
        "#24292f", "#cf222e", "#116329", "#7d4e00", "#0969da", "#8250df", "#1b7c83", "#6e7781",
        "#57606a", "#a40e26", "#1a7f37", "#633c01", "#218bff", "#a475f9", "#3192aa", "#8c959f",
    ],
};
const DARK: Palette = Palette {
    ground: "#0d1117",
    text: "#e6edf3",
    colours: [
        "#484f58", "#ff7b72", "#3fb950", "#d29922", "#58a6ff", "#bc8cff", "#39c5cf", "#b1bac4",
        "#6e7681", "#ffa198", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#ffffff",
    ],
};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, screen, directory] = &arguments[..] else {
        panic!("usage: pictures ADDRESS SCREEN DIRECTORY")
    };
    let written = String::from_utf8_lossy(&fs::read(screen).unwrap()).into_owned();
    let mut terminal = vt100::Parser::new(ROWS, COLUMNS, 0);
    terminal.process(written.split(LEAVES).next().unwrap_or_default().as_bytes());
    let browser = Browser::start().await;
    for (name, is_dark, palette) in [("light", false, LIGHT), ("dark", true, DARK)] {
        browser.look_as(Looks { width: PAGE_WIDTH, is_dark, has_scripts: true }).await;
        browser.tell("Emulation.setScrollbarsHidden", json!({ "hidden": true })).await;
        browser.go(address).await;
        take(&browser, "html", &format!("{directory}/page-{name}.webp")).await;
        let page = Path::new(screen).with_extension("html");
        fs::write(&page, html(terminal.screen(), &palette)).unwrap();
        browser.go(&format!("file://{}", page.display())).await;
        take(&browser, "pre", &format!("{directory}/top-{name}.webp")).await;
    }
    browser.stop().await;
}

/// What is seen of an element, in the window.
async fn take(browser: &Browser, element: &str, path: &str) {
    let bounds = format!(
        "(() => {{ const it = document.querySelector('{element}').getBoundingClientRect();
         return {{ x: it.x, y: it.y, width: it.width, height: Math.min(innerHeight, it.height), scale: 1 }} }})()"
    );
    let clip = browser.value(&bounds).await;
    let asked = json!({ "format": "webp", "quality": 80, "clip": clip });
    let answer = browser.tell("Page.captureScreenshot", asked).await;
    fs::write(path, BASE64_STANDARD.decode(answer["data"].as_str().unwrap()).unwrap()).unwrap();
}

/// A terminal as a page.
fn html(screen: &Screen, palette: &Palette) -> String {
    let mut text = String::new();
    for row in 0..ROWS.get() {
        for column in 0..COLUMNS.get() {
            let Some(cell) = screen.cell(row, column).filter(|it| !it.is_wide_continuation())
            else {
                continue;
            };
            let mut colours = [
                of(cell.fgcolor(), palette, palette.text),
                of(cell.bgcolor(), palette, palette.ground),
            ];
            if cell.inverse() {
                colours.reverse();
            }
            let weight = if cell.bold() { "bold" } else { "normal" };
            let content = match cell.contents() {
                "" => " ",
                "<" => "&lt;",
                "&" => "&amp;",
                other => other,
            };
            let [ink, ground] = colours;
            let _ = write!(
                text,
                "<span style='color:{ink};background:{ground};font-weight:{weight}'>{content}</span>"
            );
        }
        text.push('\n');
    }
    let (ink, ground) = (palette.text, palette.ground);
    format!(
        "<!doctype html><meta charset=utf-8><body style='margin:0;background:{ground};color:{ink}'>\
         <pre style='margin:0;padding:12px;width:max-content;font:14px/18px DejaVu Sans Mono,monospace'>{text}</pre>"
    )
}

fn of(colour: Color, palette: &Palette, default: &'static str) -> &'static str {
    match colour {
        Color::Idx(at) => palette.colours.get(usize::from(at)).copied().unwrap_or(default),
        Color::Default | Color::Rgb(..) => default,
    }
}
