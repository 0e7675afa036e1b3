//! Single tasks, each of which is added twice by its ID, and handed out once: a part of the full load.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use crate::Soak;
use crate::ledger::{RunId, line};

/// The tasks as a run, that no fetcher has.
pub const RUN: RunId = (1_000, 1);
const TASKS_MAX: usize = 100_000;
const TASKS_A_SECOND: u64 = 170;
/// Tasks that are added together, and the time between two such batches while the load lasts.
const BATCH: usize = 85;
const PAUSE: Duration = Duration::from_millis(500);

/// Adds them; what is left when the load ends comes at once.
pub fn run(soak: &Arc<Soak>) -> io::Result<()> {
    let mut stream = UnixStream::connect(&soak.sockets[0])?;
    let mut answers = BufReader::new(stream.try_clone()?).lines();
    let mut answer = || answers.next().ok_or(io::ErrorKind::UnexpectedEof)?;
    stream.write_all(b"HELLO 2 adder\n")?;
    answer()?;
    let count = TASKS_MAX.min(usize::try_from(soak.time.as_secs() * TASKS_A_SECOND).unwrap_or(0));
    for first in (0..count).step_by(BATCH) {
        let indices = first..count.min(first + BATCH);
        soak.ledger().write(RUN, "task", indices.len());
        let add = |index| format!("ADD-ONCE t{index} {}", line("task", index, RUN));
        let lines: String = indices.clone().map(add).collect();
        for is_new in [true, false] {
            stream.write_all(lines.as_bytes())?;
            for index in indices.clone() {
                let text = answer()?;
                if !text.contains(&format!("\"added\":{is_new}")) {
                    soak.fault(&format!(
                        "the task {index} is answered {text}, and new is {is_new}"
                    ));
                }
            }
        }
        soak.goes_on(PAUSE);
    }
    stream.write_all(b"QUIT\n")
}
