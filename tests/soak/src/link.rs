//! A worker's connection to one daemon: a line, and the answer to it, in time.

use std::io;
use std::path::Path;
use std::time::Duration;

use shiftboss_bench::load::connect;
use shiftboss_protocol::wire::answers::Answer;
use shiftboss_protocol::wire::session::VERSION;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Longer than a daemon takes that is not frozen.
const ANSWER_MAX: Duration = Duration::from_secs(12);
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

pub struct Link {
    stream: BufReader<UnixStream>,
    is_classic: bool,
}

impl Link {
    /// Connects, and greets: with a worker's name and lease, or, for the classic protocol, without.
    pub async fn new(socket: &Path, leased: Option<(&str, Duration)>) -> io::Result<Self> {
        let stream = BufReader::new(connect(socket).await?);
        let mut link = Self { stream, is_classic: leased.is_none() };
        if let Some((name, lease)) = leased {
            let hello = format!("HELLO {VERSION} {name} {}", lease.as_secs());
            match link.ask(&hello).await? {
                Answer::Hello => {}
                other => return Err(io::Error::other(format!("greeted with {other:?}"))),
            }
        }
        Ok(link)
    }

    /// Says a line, and returns its answer.
    pub async fn ask(&mut self, line: &str) -> io::Result<Answer> {
        let answered = timeout(ANSWER_MAX, self.exchange(line)).await;
        let bytes = answered.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        let line = bytes.strip_suffix(b"\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let read = if self.is_classic { Answer::read_classic(line) } else { Answer::read(line) };
        read.ok_or_else(|| io::Error::other(format!("answer {:?}", String::from_utf8_lossy(line))))
    }

    async fn exchange(&mut self, line: &str) -> io::Result<Vec<u8>> {
        self.stream.get_mut().write_all(format!("{line}\n").as_bytes()).await?;
        let mut bytes = Vec::new();
        (&mut self.stream).take(ANSWER_BYTES_MAX).read_until(b'\n', &mut bytes).await?;
        Ok(bytes)
    }
}
