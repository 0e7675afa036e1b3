//! A worker's side of the socket: the stock worker's one request a connection, and a client
//! that keeps its connection.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::Site;

/// How long an answer may take before the test says there is none. The stock worker waits 5 s;
/// tests that are about those 5 s look at the clock themselves.
const ANSWER: Duration = Duration::from_secs(20);

impl Site {
    /// The stock worker's request: a new connection, one line, write side closed, all read.
    /// An empty answer is a silent close.
    pub fn ask(&self, line: &str) -> String {
        self.send(format!("{line}\n").as_bytes())
    }

    /// Sends `bytes` over a new connection, closes the write side, and reads to the end.
    pub fn send(&self, bytes: &[u8]) -> String {
        let mut client = Client::connect(self);
        client.write(bytes);
        client.half_close();
        client.rest()
    }

    /// The key of the next job, or `None` for `NOJOBS`.
    pub fn next_key(&self, line: &str) -> Option<String> {
        key_of(&self.ask(line))
    }
}

/// The key in `JOB key payload\n`; `None` for `NOJOBS\n`; panics at anything else.
pub fn key_of(answer: &str) -> Option<String> {
    let line = answer.strip_suffix('\n').expect("an answer ends its line");
    if line == "NOJOBS" {
        return None;
    }
    let job = line.strip_prefix("JOB ").expect("JOB or NOJOBS");
    Some(job.split(' ').next().unwrap().to_owned())
}

/// Attempt and key of a job of protocol 2.
pub fn job_of(answer: &str) -> (i64, String) {
    let mut words = answer.split_whitespace();
    assert_eq!(words.next(), Some("JOB"), "{answer:?}");
    (words.next().unwrap().parse().unwrap(), words.next().unwrap().to_owned())
}

pub fn attempt_of(answer: &str) -> i64 {
    job_of(answer).0
}

/// One connection of a worker.
pub struct Client {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Client {
    pub fn connect(site: &Site) -> Self {
        Self::over(UnixStream::connect(site.socket()).unwrap())
    }

    /// A worker of protocol 2, whose leases last so many seconds.
    pub fn leased(site: &Site, seconds: u32) -> Self {
        Self::opted_in(site, &format!("HELLO 2 worker {seconds}"))
    }

    pub fn opted_in(site: &Site, hello: &str) -> Self {
        let mut client = Self::connect(site);
        let greeting = client.ask(hello);
        assert!(greeting.starts_with("HELLO 2 "), "{hello}: {greeting}");
        client
    }

    /// A client over a stream that is connected already.
    pub fn over(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(ANSWER)).unwrap();
        stream.set_write_timeout(Some(ANSWER)).unwrap();
        let unread = Vec::new();
        Self { stream, unread }
    }

    /// Sends `line` and waits until its answer has arrived; the caller decides what becomes of it.
    pub fn unread(site: &Site, line: &str, half_close: bool) -> Self {
        let mut client = Self::connect(site);
        client.write(format!("{line}\n").as_bytes());
        if half_close {
            client.half_close();
        }
        client.wait_unread();
        client
    }

    /// Writes `bytes`; a peer that has closed already is no error.
    pub fn write(&mut self, bytes: &[u8]) {
        match self.stream.write_all(bytes) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {}
            result => result.unwrap(),
        }
    }

    pub fn half_close(&self) {
        // The daemon may have closed already; then there is nothing to shut.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Sends one line and returns the answer's line, newline included; empty at a close.
    pub fn ask(&mut self, line: &str) -> String {
        self.write(format!("{line}\n").as_bytes());
        self.line()
    }

    /// The next line, newline included; what there is of it when the daemon closes.
    pub fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                return text(self.unread.drain(..=end).collect());
            }
            if !self.read_more() {
                return text(std::mem::take(&mut self.unread));
            }
        }
    }

    /// The next line if it has arrived, newline included; does not wait.
    pub fn take_line(&mut self) -> Option<String> {
        self.stream.set_nonblocking(true).unwrap();
        let mut buffer = [0_u8; 4096];
        while let Ok(count @ 1..) = self.stream.read(&mut buffer) {
            self.unread.extend_from_slice(&buffer[..count]);
        }
        self.stream.set_nonblocking(false).unwrap();
        let end = self.unread.iter().position(|&byte| byte == b'\n')?;
        Some(text(self.unread.drain(..=end).collect()))
    }

    /// Everything until the daemon closes.
    pub fn rest(mut self) -> String {
        while self.read_more() {}
        text(self.unread)
    }

    /// Waits until an answer has arrived, without reading it.
    pub fn wait_unread(&self) {
        use rustix::net::{RecvFlags, recv};
        let mut byte = [0_u8; 1];
        let (_, count) = recv(&self.stream, &mut byte, RecvFlags::PEEK).unwrap();
        assert_eq!(count, 1, "the daemon closed instead of answering");
    }

    pub fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// A daemon that closes with some of our bytes unread resets; both are its end.
    fn read_more(&mut self) -> bool {
        let mut buffer = [0_u8; 4096];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(count) => {
                self.unread.extend_from_slice(&buffer[..count]);
                true
            }
            Err(e) if e.kind() == ErrorKind::ConnectionReset => false,
            Err(e) => panic!("no answer: {e}; so far {:?}", text(self.unread.clone())),
        }
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}
