//! Standard error, written by a thread of its own, so that logging never waits for the reader. If the reader stops (a
//! pager, Ctrl-S, a stuck log shipper), lines are lost, and nothing else.
//!
//! What waits to be written is bounded. Lines that do not fit are dropped and counted; the count is logged in their place
//! when reading goes on. [`crate::logging`] starts the thread and writes events; copied output of commands, the
//! progress line, panics and [`crate::program`] go through it, too. A process ends through [`exit`] or after [`flush`].
//! Without the thread, in commands that do not run for long, text is written at once.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::mem::take;
use std::os::fd::{AsRawFd, RawFd};
use std::panic;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tracing::warn;

/// Most bytes that wait to be written, besides those being written.
const WAITING_BYTES_MAX: usize = 1024 * 1024;
/// Size of the parts in which [`write_patiently`] writes.
const PART_BYTES: usize = 64 * 1024;
/// How long the end of the process waits for the reader.
const FLUSH_MAX: Duration = Duration::from_secs(1);

static QUEUE: OnceLock<Queue> = OnceLock::new();

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    is_writing: bool,
    /// Lines that did not fit.
    dropped: u64,
}

/// Starts the thread. From now on panics are reported through it, too.
pub fn start() -> io::Result<()> {
    let queue = QUEUE.get_or_init(Queue::default);
    thread::Builder::new().name("stderr".to_owned()).spawn(|| queue.write_for_ever())?;
    panic::set_hook(Box::new(|panicked| {
        let thread = thread::current();
        let mut text = format!("\nthread '{}' {panicked}\n", thread.name().unwrap_or("<unnamed>"));
        let backtrace = Backtrace::capture();
        if backtrace.status() == BacktraceStatus::Captured {
            text += &format!("{backtrace}\n");
        }
        write(text.as_bytes());
    }));
    Ok(())
}

/// Writes whole lines, all of them or none, without waiting for a reader.
pub fn write(text: &[u8]) {
    match QUEUE.get() {
        Some(queue) => queue.add(text),
        None => _ = io::stderr().lock().write_all(text),
    }
}

/// Writes text that must not be lost, as room for it becomes free. `write` gets one part of it at a time, and writes
/// that with [`write()`]. Waits for the reader.
pub fn write_patiently(text: &[u8], write: impl Fn(&[u8])) {
    let mut rest = text;
    while !rest.is_empty() {
        let reach = rest.len().min(PART_BYTES);
        let line_end = rest[..reach].iter().rposition(|byte| *byte == b'\n');
        let (part, more) = rest.split_at(line_end.map_or(reach, |at| at + 1));
        if let Some(queue) = QUEUE.get() {
            let is_full = |state: &mut State| state.waiting.len() > WAITING_BYTES_MAX / 2;
            drop(queue.changed.wait_while(queue.lock(), is_full));
        }
        write(part);
        rest = more;
    }
}

pub fn dropped_lines() -> u64 {
    QUEUE.get().map_or(0, |queue| queue.lock().dropped)
}

/// Waits until all is written, but no longer than a second.
pub fn flush() {
    if let Some(queue) = QUEUE.get() {
        let is_open = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        // What is not written by then is lost: the end of the process cannot wait longer.
        drop(queue.changed.wait_timeout_while(queue.lock(), FLUSH_MAX, is_open));
    }
}

pub fn exit(code: i32) -> ! {
    flush();
    std::process::exit(code)
}

impl Queue {
    /// Nothing that holds the lock can panic.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, text: &[u8]) {
        let mut state = self.lock();
        if state.waiting.len() + text.len() <= WAITING_BYTES_MAX {
            state.waiting.extend_from_slice(text);
            self.changed.notify_all();
        } else {
            state.dropped += text.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }

    fn write_for_ever(&self) {
        let (mut told, mut is_taken) = (0, true);
        loop {
            let is_idle = |state: &mut State| state.waiting.is_empty();
            let awaited = self.changed.wait_while(self.lock(), is_idle);
            let mut state = awaited.unwrap_or_else(PoisonError::into_inner);
            let (text, dropped) = (take(&mut state.waiting), state.dropped);
            state.is_writing = true;
            drop(state);
            if dropped > told && is_taken {
                // There is room now: the count goes where those lines would have been.
                warn!(lines = dropped - told, "Lines of the log were dropped: nobody read it.");
                told = dropped;
            }
            // Each line is one write, so that other writers do not split it.
            let mut lost = 0;
            for line in text.split_inclusive(|byte| *byte == b'\n') {
                is_taken = write_whole(line).is_ok();
                lost += u64::from(!is_taken);
            }
            let mut state = self.lock();
            state.is_writing = false;
            state.dropped += lost;
            drop(state);
            self.changed.notify_all();
        }
    }
}

/// Waits for room as long as it takes, even if another process has made the same pipe or terminal non-blocking.
fn write_whole(mut line: &[u8]) -> Result<(), Errno> {
    let stderr = io::stderr();
    while !line.is_empty() {
        match rustix::io::write(&stderr, line) {
            Ok(count) => line = line.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[derive(Debug)]
pub struct Drawn;

impl Write for Drawn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRawFd for Drawn {
    fn as_raw_fd(&self) -> RawFd {
        io::stderr().as_raw_fd()
    }
}
