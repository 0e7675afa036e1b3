//! Row 20: how long `simulate` takes for a long list.

use std::fs;
use std::io;
use std::process::Command;
use std::time::{Duration, Instant};

use super::Setting;
use crate::bare::key;
use crate::report::{Figure, ms};
use crate::servers::new_home;

const TARGET: Duration = Duration::from_secs(20);

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let home = new_home()?;
    let list = home.path().join("bench.1.txt");
    let lines: String = (0..setting.list).map(|at| key(at) + " 1.0 -> 2.0\n").collect();
    fs::write(&list, lines)?;
    let begun = Instant::now();
    let mut program = Command::new(&setting.program);
    program.args(["simulate", "--duration", "3s", "--workers", "100"]).arg(&list);
    let output = program.output()?;
    let took = begun.elapsed();
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(vec![Figure {
        row: 20,
        what: format!("simulate: {} tasks, with 100 workers and 101", setting.list),
        measured: ms(took),
        compared: String::new(),
        target: "20 s",
        met: Some(took <= TARGET),
    }])
}
