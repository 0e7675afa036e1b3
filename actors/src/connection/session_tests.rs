//! A connection that speaks protocol 2, over a socket pair and a storage over the mock store.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::connection::tests::fake::Fake;
use crate::connection::{ConnectionActor, Operators, SessionLinks, WorkLinks};
use crate::testing::{MockStore, Trouble, until};
use shiftboss_protocol::answers::live::Daemon;
use shiftboss_queue::context::Settings;

fn operators(mock: &MockStore) -> Operators {
    let (database, input_dir, socket) = ("/db".into(), "/in".into(), "/sock".into());
    let daemon = Arc::new(Daemon { pid: 1, database, input_dir, socket, started: 2 });
    Operators {
        reader: Some(Arc::new(mock.clone())),
        daemon,
        group: None,
        usage: || None,
        dropped_log_lines: || 0,
    }
}

/// A worker's end of the socket, the actor, and its storage.
struct Site {
    reader: BufReader<OwnedReadHalf>,
    writer: Option<OwnedWriteHalf>,
    closing: CancellationToken,
    mock: MockStore,
}

impl Site {
    fn new(jobs: &[&str]) -> Self {
        Self::over(MockStore::with_jobs(jobs))
    }

    fn over(mock: MockStore) -> Self {
        let (storage, _) = mock.start();
        let fake = Fake::default();
        let watcher = fake.clone().start().recipient();
        let session = SessionLinks::new(storage.clone(), watcher, None, None, operators(&mock));
        let links = WorkLinks {
            dispatch: storage.clone().recipient(),
            finish: storage.recipient(),
            session: Some(Rc::new(session)),
            ..fake.links()
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let closing = CancellationToken::new();
        ConnectionActor::new(ours, links, closing.clone()).start();
        let (reader, writer) = theirs.into_split();
        Self { reader: BufReader::new(reader), writer: Some(writer), closing, mock }
    }

    async fn opted_in(jobs: &[&str]) -> Self {
        Self::new(jobs).hello().await
    }

    async fn with_room(max_single_tasks: u64) -> Self {
        let settings = Settings { max_single_tasks, ..Settings::default() };
        Self::over(MockStore::new(settings)).hello().await
    }

    async fn hello(mut self) -> Self {
        assert!(self.ask("HELLO 2 w 30").await.starts_with("HELLO 2 "));
        self
    }

    async fn say(&mut self, lines: &str) {
        let writer = self.writer.as_mut().unwrap();
        writer.write_all(format!("{lines}\n").as_bytes()).await.unwrap();
    }

    /// The next line, without its end; empty at a close.
    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).await.unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    async fn ask(&mut self, line: &str) -> String {
        self.say(line).await;
        self.line().await
    }

    async fn looks(&self, call: &str, count: usize) {
        until("the store is asked", || self.mock.count(call) >= count).await;
    }

    /// Waits until the store was asked `count` times for a job, or whether there is one.
    async fn dispatches(&self, count: usize) {
        until("the store is asked", || {
            let calls = self.mock.calls();
            calls.iter().filter(|call| ["dispatch w", "look"].contains(&call.as_str())).count()
                >= count
        })
        .await;
    }
}

/// Every request has one answer, in order, also when they come in one write.
#[actix::test]
async fn requests_are_answered_in_order() {
    let mut site = Site::opted_in(&["a", "b"]).await;
    for trouble in [Trouble::None, Trouble::None, Trouble::busy()] {
        site.mock.trouble("read", trouble);
    }
    site.say("READY\nDONE 1 0\nREADY 5\nBEAT 2\nRELEASE 2\nBEAT 2\nDONE 1 0\nfoo\nACCEPT-INPUT\nQUEUE 1\nWHY c\nLOG 1\nQUIT\nREADY")
        .await;
    let mut answers = String::new();
    site.reader.read_to_string(&mut answers).await.unwrap();
    let unsupported =
        "ERROR unsupported this daemon has no such request; its HELLO lists those it has";
    let queue = r#"{"database":"/db","daemon":{"pid":1,"database":"/db","input_dir":"/in","socket":"/sock","started":2},"daemon_unknown":null,"paused":false,"keys":[{"key":"b","fetcher":"@tasks","run":2,"group":null,"last_started":null,"again":false,"bumped":false,"payload":"1"}],"truncated":false}"#;
    let expected = format!(
        "JOB 1 a 1\nOK\nJOB 2 b 1\nOK\nOK\nLOST\nOK\n{unsupported}\n{{\"accepted\":false}}\n{queue}\n\
        ERROR unknown the key c is unknown: no list has it, and it never ran\nERROR busy no\nOK\n"
    );
    assert_eq!(answers, expected);
    assert_eq!(site.mock.undone(), []);
}

/// A wait ends with NOJOBS after its time, at any further line, and at the end of input.
#[actix::test]
async fn a_wait_ends() {
    let mut site = Site::opted_in(&[]).await;
    let began = Instant::now();
    assert_eq!(site.ask("READY 1").await, "NOJOBS");
    assert!(began.elapsed() >= Duration::from_secs(1));
    site.say("READY 1000").await;
    site.dispatches(5).await;
    assert_eq!(site.ask("BEAT 1").await, "NOJOBS");
    assert_eq!(site.line().await, "LOST");
    site.say("READY 1000").await;
    drop(site.writer.take());
    assert_eq!((site.line().await.as_str(), site.line().await.as_str()), ("NOJOBS", ""));
}

/// A beat that waits ends likewise, with OK; and with STOP when the job is to stop.
#[actix::test]
async fn a_beat_waits() {
    let mut site = Site::opted_in(&["a"]).await;
    assert_eq!(site.ask("READY").await, "JOB 1 a 1");
    let began = Instant::now();
    assert_eq!(site.ask("BEAT 1 1").await, "OK");
    assert!(began.elapsed() >= Duration::from_secs(1));
    assert_eq!(site.ask("BEAT 1 1000\nBEAT 2 1000").await, "OK");
    assert_eq!(site.line().await, "LOST");
    site.say("BEAT 1 1000").await;
    site.looks("stops", 2).await;
    site.mock.stop("a");
    assert_eq!(site.line().await, "STOP");
    assert_eq!(site.ask("BEAT 1 1000").await, "STOP");
    assert_eq!(site.ask("RELEASE 1").await, "OK");
}

/// The tenth error closes the connection; the ones before do not.
#[actix::test]
async fn ten_errors_close() {
    let mut site = Site::opted_in(&["a"]).await;
    for _ in 0..9 {
        assert!(site.ask("nonsense").await.starts_with("ERROR unsupported "));
    }
    assert_eq!(site.ask("READY").await, "JOB 1 a 1");
    assert!(site.ask("DONE 9 0").await.starts_with("ERROR "));
    assert_eq!(site.line().await, "");
    assert_eq!(site.mock.undone(), [], "closing releases nothing");
}

/// A wrong HELLO is answered with an error, and the connection closed.
#[actix::test]
async fn a_faulty_hello_is_closed() {
    for (hello, answer) in [
        ("HELLO 3 w", "ERROR version this daemon speaks protocol 2"),
        ("HELLO 2", "ERROR usage HELLO 2 <worker name> [lease seconds, 1 to 604800]"),
    ] {
        let mut site = Site::new(&["a"]);
        assert_eq!(site.ask(hello).await, answer);
        assert_eq!(site.line().await, "", "{hello}");
    }
}

/// A job is its worker's when it is written, and not before.
#[actix::test]
async fn a_job_that_cannot_be_written_is_undone() {
    let mut site = Site::opted_in(&["a"]).await;
    site.say("READY").await;
    let Site { reader, writer, mock, closing: _closing } = site;
    drop((reader, writer));
    until("it is undone", || mock.undone().len() == 1).await;
}

/// Storage in trouble is an error that may be repeated; the connection stays.
#[actix::test]
async fn trouble_is_an_error() {
    let mut site = Site::opted_in(&["a"]).await;
    // More often than a worker's own errors are allowed.
    for _ in 0..11 {
        site.mock.trouble("dispatch", Trouble::full());
        assert!(site.ask("READY 5").await.starts_with("ERROR busy no space left"));
    }
    assert_eq!(site.ask("READY").await, "JOB 1 a 1");
    site.mock.trouble("commit", Trouble::full());
    assert!(site.ask("RELEASE 1").await.starts_with("ERROR busy no space left"));
}

/// The end of the daemon closes a waiting connection, without an answer.
#[actix::test]
async fn the_daemon_s_end_closes() {
    let mut site = Site::opted_in(&[]).await;
    site.say("READY 1000").await;
    site.dispatches(2).await;
    site.closing.cancel();
    let mut rest = String::new();
    site.reader.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "");
}

/// Tasks that come together are added in one step, each with its answer, and each error is its own.
#[actix::test]
async fn tasks_are_added_together() {
    let mut site = Site::with_room(2).await;
    site.say("ADD a 1\nADD a 1\nADD b  2\nADD c 3\nADD d\nREADY").await;
    let added = |key: &str, added: bool, before: usize| {
        format!(
            "{{\"key\":\"{key}\",\"added\":{added},\"keys_before\":{before},\"exact\":true,\"tasks_before\":0}}"
        )
    };
    let full =
        "ERROR full there are as many single tasks as may be (max_single_tasks); add it later";
    let usage = "ERROR usage ADD task; task: KEY PAYLOAD, at most 1048576 bytes together, without white space at their ends";
    for expected in [
        added("a", true, 0),
        added("a", false, 0),
        added("b", true, 1),
        full.to_owned(),
        usage.to_owned(),
        "JOB 1 a 1".to_owned(),
    ] {
        assert_eq!(site.line().await, expected);
    }
    assert_eq!(site.mock.calls().iter().filter(|call| *call == "commit").count(), 2);
    let mut site = Site::with_room(10).await;
    // What is on disk is acknowledged, whether its turn is known or not; else the answer is busy.
    site.mock.trouble("read", Trouble::busy());
    let answer = site.ask("ADD d 1").await;
    assert!(
        answer.contains("\"added\":true") && answer.contains("\"tasks_before\":null"),
        "{answer}"
    );
    site.mock.trouble("commit", Trouble::full());
    site.say("ADD e 1\nADD f 1").await;
    for _ in 0..2 {
        assert!(site.line().await.starts_with("ERROR busy no space left"));
    }
}

/// A full queue is no fault of the connection's.
#[actix::test]
async fn a_full_queue_closes_nothing() {
    let mut site = Site::with_room(0).await;
    for _ in 0..20 {
        assert!(site.ask("ADD a 1").await.starts_with("ERROR full "));
    }
    assert_eq!(site.ask("READY").await, "NOJOBS");
}
