//! Passes on what a command writes into a pipe, in constant memory. It is a task of its own; its user
//! ([`super::command`], or the code that prints output) says when the command has ended.

use std::io::{self, PipeWriter};
use std::panic::resume_unwind;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

/// The longest piece that is passed on.
const PIECE_BYTES: usize = 32 * 1024;
/// How long the pipe of an ended command may stay open, held by a process that left its group.
const DRAIN: Duration = Duration::from_millis(500);
/// Most bytes read after that: all that a pipe can hold, so that no output of the command is lost if passing it on
/// takes long.
const LATE_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A pipe that is read. Dropping it has the same effect as the command's end.
pub struct Pump {
    task: JoinHandle<()>,
    ended: Option<oneshot::Sender<()>>,
}

/// A pipe: the end that a pump reads, and the command's.
pub fn pipe() -> io::Result<(Receiver, PipeWriter)> {
    let (ours, theirs) = io::pipe()?;
    Ok((Receiver::from_owned_fd(ours.into())?, theirs))
}

impl Pump {
    /// Starts to read from a pipe. `pass` is given pieces, and an empty one at the end.
    pub fn start<F: Future<Output = ()> + Send + 'static>(
        pipe: Receiver,
        pass: impl FnMut(&[u8]) -> F + Send + 'static,
    ) -> Self {
        let (ended, end) = oneshot::channel();
        Self { task: tokio::spawn(pump(pipe, end, pass)), ended: Some(ended) }
    }

    /// The command has ended: only what it has written is still read.
    pub fn command_ended(&mut self) {
        self.ended = None;
    }

    /// The same, and waits until everything it wrote is passed on. May be cancelled and called again.
    pub async fn end(&mut self) {
        self.command_ended();
        if !self.task.is_finished()
            && let Err(error) = (&mut self.task).await
            && error.is_panic()
        {
            resume_unwind(error.into_panic());
        }
    }
}

async fn pump<F: Future<Output = ()>>(
    mut pipe: Receiver,
    mut ended: oneshot::Receiver<()>,
    mut pass: impl FnMut(&[u8]) -> F,
) {
    let mut piece = vec![0; PIECE_BYTES];
    let (mut deadline, mut late) = (None, 0);
    while late < LATE_BYTES_MAX {
        let length = tokio::select! {
            // The end is checked first: a process that outlived its command may never leave the pipe empty. The
            // deadline is checked only when the pipe is empty.
            biased;
            _ = &mut ended, if deadline.is_none() => {
                deadline = Some(Instant::now() + DRAIN);
                continue;
            }
            length = pipe.read(&mut piece) => length.unwrap_or(0),
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => 0,
        };
        if length == 0 {
            break;
        }
        late +=
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) { length } else { 0 };
        pass(&piece[..length]).await;
    }
    pass(&[]).await;
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use tokio::time::timeout;

    use super::*;

    /// A process that outlived its command and never leaves the pipe empty does not delay the end.
    #[tokio::test]
    async fn a_pipe_that_is_always_full() {
        let (ours, mut theirs) = pipe().unwrap();
        let writer = std::thread::spawn(move || while theirs.write_all(&[b'x'; 65_536]).is_ok() {});
        let mut pump = Pump::start(ours, |_| tokio::time::sleep(Duration::from_millis(1)));
        timeout(Duration::from_secs(20), pump.end()).await.expect("it ends");
        writer.join().unwrap();
    }
}
