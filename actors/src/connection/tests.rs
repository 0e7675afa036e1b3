//! The ConnectionActor over a socket pair, with recorded storage and looks.

pub mod fake;

use std::time::Duration;

use actix::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{ConnectionActor, LINE_TIMEOUT, REQUEST_TIMEOUT};
use crate::testing::until;
use fake::{Fake, Next};

/// Makes the connection panic.
#[derive(Message)]
#[rtype(result = "()")]
struct Bomb;

impl Handler<Bomb> for ConnectionActor {
    type Result = ();

    fn handle(&mut self, _: Bomb, _: &mut Self::Context) {
        panic!("a connection panics");
    }
}

/// A connection to the fake, and the worker's end of it.
fn connect(fake: &Fake) -> (UnixStream, Addr<ConnectionActor>, JoinHandle<()>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let context = Context::new();
    let address = context.address();
    let actor = ConnectionActor::new(ours, fake.links(), CancellationToken::new());
    (theirs, address, actix::spawn(context.into_future(actor)))
}

fn fake(next: Vec<Next>) -> Fake {
    let fake = Fake::default();
    fake.next.borrow_mut().extend(next);
    fake
}

/// Sends all, half-closes, and reads to the end.
async fn exchange(stream: &mut UnixStream, lines: &str) -> String {
    stream.write_all(lines.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

async fn line(stream: &mut UnixStream) -> String {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        line.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(line).unwrap()
}

/// Lines of one write are answered in order, one at a time.
#[actix::test]
async fn requests_are_answered_in_order() {
    let fake = fake(vec![Next::Job("a"), Next::Job("b"), Next::Nothing, Next::Nothing]);
    let (mut worker, _address, _end) = connect(&fake);
    let answers = exchange(&mut worker, "READY\nDONE a 3\nREADY\n").await;
    assert_eq!(answers, "JOB a 1\nJOB b 1\nNOJOBS\n");
    assert_eq!(fake.asked(), ["ready", "done a 3", "ready", "look", "ready"]);
}

/// NOJOBS is said only after a look, and after another one while there is more to be found.
#[actix::test]
async fn no_jobs_is_said_after_a_look() {
    let fake = fake(vec![Next::Nothing, Next::Nothing, Next::Later, Next::Nothing]);
    fake.more.borrow_mut().extend([true, true, false]);
    let (mut worker, _address, _end) = connect(&fake);
    assert_eq!(exchange(&mut worker, "READY\n").await, "NOJOBS\n");
    assert_eq!(fake.asked(), ["ready", "look", "ready", "look", "ready", "ready", "look", "ready"]);
}

/// Endless files without a job in them do not prevent NOJOBS, as long as every one was looked into. A look that does
/// not end, or that misses some files, does prevent it.
#[actix::test]
async fn no_jobs_is_said_in_time_while_there_is_more_to_read() {
    tokio::time::pause();
    let cases =
        [(10, false, "NOJOBS\n"), (2_500, false, "NOJOBS\n"), (10_000, false, ""), (10, true, "")];
    for (look, missed, answer) in cases {
        let fake = fake(vec![]);
        fake.missed.set(missed);
        fake.endless.set(Some(Duration::from_millis(look)));
        let (mut worker, _address, _end) = connect(&fake);
        let before = tokio::time::Instant::now();
        assert_eq!(exchange(&mut worker, "READY\n").await, answer, "looks of {look} ms");
        assert!(before.elapsed() <= REQUEST_TIMEOUT + Duration::from_millis(10));
    }
}

/// A request that cannot be answered closes the connection in silence; later ones are dropped.
#[actix::test]
async fn an_error_closes_in_silence() {
    let fake = fake(vec![Next::Error]);
    let (mut worker, _address, end) = connect(&fake);
    assert_eq!(exchange(&mut worker, "READY\nREADY\n").await, "");
    end.await.unwrap();
    assert_eq!(fake.asked(), ["ready"]);
}

/// So does a storage that does not answer in time.
#[actix::test]
async fn a_silent_storage_closes_in_time() {
    tokio::time::pause();
    let fake = fake(vec![Next::Silence]);
    let (mut worker, _address, _end) = connect(&fake);
    let before = tokio::time::Instant::now();
    assert_eq!(exchange(&mut worker, "READY\n").await, "");
    assert!(before.elapsed() >= REQUEST_TIMEOUT && before.elapsed() < REQUEST_TIMEOUT * 2);
}

/// A job that the worker did not read is undone, and one that it read stays its own, whichever way it closes.
#[actix::test]
async fn a_job_that_was_not_read_is_undone() {
    for (is_read, half_close) in [(true, true), (true, false), (false, true), (false, false)] {
        let fake = fake(vec![Next::Job("a")]);
        let (mut worker, _address, end) = connect(&fake);
        worker.write_all(b"READY\n").await.unwrap();
        if half_close {
            worker.shutdown().await.unwrap();
        }
        worker.readable().await.unwrap();
        if is_read {
            assert_eq!(line(&mut worker).await, "JOB a 1\n");
        }
        drop(worker);
        end.await.unwrap();
        if is_read {
            tokio::task::yield_now().await;
            assert_eq!(fake.asked(), ["ready"], "half close: {half_close}");
        } else {
            until("it is undone", || fake.asked() == ["ready", "undo 1"]).await;
        }
    }
}

/// A panic closes only that connection, and gives its job back.
#[actix::test]
async fn a_panic_closes_one_connection() {
    let fake = fake(vec![Next::Job("a"), Next::Job("b")]);
    let (mut first, address, end) = connect(&fake);
    let (mut second, _address, _end) = connect(&fake);
    first.write_all(b"READY\n").await.unwrap();
    first.readable().await.unwrap();
    address.do_send(Bomb);
    assert!(end.await.unwrap_err().is_panic());
    until("its job is undone", || fake.asked() == ["ready", "undo 1"]).await;
    assert_eq!(line(&mut first).await, "JOB a 1\n");
    assert_eq!(first.read(&mut [0]).await.unwrap_or(0), 0, "closed");
    assert_eq!(exchange(&mut second, "READY\n").await, "JOB b 1\n");
}

/// A line that is begun closes the connection after a while, whether the rest drips or does not come at all.
#[actix::test]
async fn half_a_line_has_its_time() {
    tokio::time::pause();
    for drop_by_drop in [&b""[..], b"x"] {
        let fake = fake(vec![]);
        let (mut worker, _address, mut end) = connect(&fake);
        worker.write_all(b"REA").await.unwrap();
        let before = tokio::time::Instant::now();
        while !end.is_finished() && before.elapsed() < LINE_TIMEOUT * 2 {
            // It may be closed by now.
            let _ = worker.write_all(drop_by_drop).await;
            let _ = tokio::time::timeout(LINE_TIMEOUT / 4, &mut end).await;
        }
        assert!(before.elapsed() >= LINE_TIMEOUT && before.elapsed() < LINE_TIMEOUT * 2);
        assert_eq!(fake.asked(), Vec::<String>::new());
    }
}
