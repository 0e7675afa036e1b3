//! A connection to the daemon on the runtime's thread: requests out, answers in, each within its time.
//! [`super::client`] decides what is requested, and when; the protocol crate parses lines.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use shiftboss_protocol::client::{ANSWER_TIMEOUT, ClientError, is_close};
use shiftboss_protocol::model::Idle;
use shiftboss_protocol::verbs::Quit;
use shiftboss_protocol::wire::answers::{Answer, Job};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// A job, or why there is none.
pub type Given = Result<Job, Idle>;

/// Longest line that is read: far longer than any job's.
const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub struct Connection {
    answers: BufReader<OwnedReadHalf>,
    requests: OwnedWriteHalf,
    /// All requests are answered. Otherwise it is not known what comes next.
    pub is_usable: bool,
}

impl Connection {
    pub async fn connect(socket: &Path) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(socket).await.map_err(ClientError::Connect)?;
        let (answers, requests) = stream.into_split();
        Ok(Self { answers: BufReader::new(answers), requests, is_usable: true })
    }

    /// Sends a request, or several lines of them. A daemon that has closed is found when its answers are read.
    pub async fn send(&mut self, request: impl Display) -> Result<(), ClientError> {
        self.is_usable = false;
        let line = format!("{request}\n");
        match in_time(Duration::ZERO, self.requests.write_all(line.as_bytes())).await {
            Err(error) if !is_close(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// What `take` makes of the next answer, which may take `wait`. When `enough` resolves the request is taken back;
    /// its answer may be a job all the same.
    pub async fn answer<T>(
        &mut self,
        wait: Duration,
        enough: impl Future<Output = ()>,
        take: impl FnOnce(Answer) -> Result<T, Answer>,
    ) -> Result<T, ClientError> {
        self.is_usable = false;
        let mut line = pin!(in_time(wait, line(&mut self.answers)));
        let (line, is_over) = tokio::select! {
            line = &mut line => (line?, false),
            () = enough => {
                // Fails only when the daemon has closed, which the next read tells.
                let _ = self.requests.write_all(format!("{}\n", Quit {}).as_bytes()).await;
                (in_time(Duration::ZERO, line).await?, true)
            }
        };
        let taken = take(read(line, Answer::read)?).map_err(ClientError::from);
        self.is_usable = !is_over && matches!(taken, Ok(_) | Err(ClientError::Refused { .. }));
        taken
    }

    /// The answer to the only request on this connection, as `reading` reads it.
    pub async fn only(
        mut self,
        request: &str,
        reading: impl FnOnce(&[u8]) -> Option<Answer>,
    ) -> Result<Answer, ClientError> {
        self.send(request).await?;
        // Fails only when the daemon has closed, which the next read tells.
        let _ = self.requests.shutdown().await;
        read(self.line(Duration::ZERO).await?, reading)
    }

    /// The next line, whatever its content, without its end; `None`: the daemon has closed.
    pub async fn line(&mut self, wait: Duration) -> io::Result<Option<Vec<u8>>> {
        in_time(wait, line(&mut self.answers)).await
    }
}

/// Something that takes as long as an answer may, and `wait` longer.
async fn in_time<T>(wait: Duration, talk: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let limit = wait.saturating_add(ANSWER_TIMEOUT);
    timeout(limit, talk).await.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

/// A line without its end; `None`: the daemon has closed.
async fn line(answers: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    match answers.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
        Err(error) if !is_close(&error) => return Err(error),
        _ => {}
    }
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => Err(ErrorKind::UnexpectedEof.into()),
    }
}

fn read(
    line: Option<Vec<u8>>,
    read: impl FnOnce(&[u8]) -> Option<Answer>,
) -> Result<Answer, ClientError> {
    let line = line.ok_or(ClientError::Closed)?;
    read(&line).ok_or_else(|| ClientError::garbled(&line))
}

/// The answer to a request for a job.
pub fn given(answer: Answer) -> Result<Given, Answer> {
    match answer {
        Answer::Job(job) => Ok(Ok(job)),
        Answer::NoJobs(idle) => Ok(Err(idle)),
        other => Err(other),
    }
}
