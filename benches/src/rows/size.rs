//! Rows 11 and 12: memory, and the start, with a queue of the largest size.

use std::io;
use std::time::{Duration, Instant};

use super::Setting;
use super::latency::ask;
use super::shapes::{Shape, build};
use crate::report::{Figure, ms};
use crate::servers::{Server, new_home};

const START_TARGET: Duration = Duration::from_millis(100);

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let home = new_home()?;
    let idle = Server::shiftboss(&setting.program, home.path(), &[])?;
    ask(&idle.socket, "READY\n")?;
    let mut figures = vec![memory("idle", idle.memory()?.0, 15.0, "15 MB")];
    idle.stop()?;

    let home = build(setting, Shape::Waiting, setting.largest)?;
    let begun = Instant::now();
    let server = Server::shiftboss(&setting.program, home.path(), &[])?;
    let answer = ask(&server.socket, "READY\n")?;
    let started = begun.elapsed();
    if !answer.starts_with("JOB ") {
        return Err(io::Error::other(format!("the first answer was {answer:?}")));
    }
    let what = format!("after the first answer, with {} rows", setting.largest);
    figures.push(memory(&what, server.memory()?.1, 100.0, "100 MB"));
    figures.push(Figure {
        row: 12,
        what: format!("start to first answer, {} known rows", setting.largest),
        measured: ms(started),
        compared: String::new(),
        target: "100 ms",
        met: Some(started <= START_TARGET),
    });
    Ok(figures)
}

/// A line of row 11.
#[must_use]
pub fn memory(when: &str, megabytes: f64, target: f64, target_text: &'static str) -> Figure {
    Figure {
        row: 11,
        what: format!("memory, {when}"),
        measured: format!("{megabytes:.1} MB"),
        compared: String::new(),
        target: target_text,
        met: Some(megabytes <= target),
    }
}
