//! Row 13: how soon a line that was written is handed out.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Setting;
use crate::report::{Figure, ms};
use crate::servers::{Server, new_home};

/// Tries.
const TRIES: usize = 1000;
const TARGET: Duration = Duration::from_millis(10);

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let home = new_home()?;
    let server = Server::shiftboss(&setting.program, home.path(), &[])?;
    let mut list = File::create(server.input("bench.1.txt.part"))?;
    let mut times = Vec::new();
    for index in 0..TRIES {
        let line = format!("key{index} {index}\n");
        let begun = Instant::now();
        list.write_all(line.as_bytes())?;
        let answer = ask(&server.socket, "READY\n")?;
        times.push(begun.elapsed());
        if answer != format!("JOB {line}") {
            return Err(io::Error::other(format!("{line:?} was answered {answer:?}")));
        }
    }
    times.sort_unstable();
    let (half, most) = (times[TRIES / 2], times[TRIES * 99 / 100]);
    Ok(vec![Figure {
        row: 13,
        what: "from the write of a line into a .part to its job, request included".to_owned(),
        measured: format!("p50 {}, p99 {}, max {}", ms(half), ms(most), ms(times[TRIES - 1])),
        compared: String::new(),
        target: "p99 10 ms",
        met: Some(most <= TARGET),
    }])
}

/// One request on a connection of its own, as a shell worker makes it.
///
/// # Errors
/// When it is not answered.
pub fn ask(socket: &Path, request: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
