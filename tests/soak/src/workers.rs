//! The workers of the soak: connections that always have one request in flight.
//!
//! Every job that they are handed goes into the ledger. They end when, after the load, there is no
//! work any more. A worker whose connection is closed says the same again, as the protocol asks it
//! to; but nothing that the soak does may close one, so that is a fault.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::UnixStream;
use tokio::task::LocalSet;

use crate::{Soak, tasks};
use shiftboss_bench::load::{connect, exchange};
use shiftboss_bench::protocol::{Outcome, Protocol};

/// Connections at once.
const WORKERS: usize = 64;
/// The longest that a worker may wait for its answer.
pub const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a worker that got no work waits before it asks again.
const IDLE: Duration = Duration::from_millis(20);
/// And one that got no answer.
const UNANSWERED: Duration = Duration::from_millis(500);

/// Runs all workers to their end.
///
/// # Errors
/// When the daemon cannot be reached.
pub fn run(soak: &Arc<Soak>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let start = |_| tokio::task::spawn_local(work(Arc::clone(soak)));
        let workers: Vec<_> = (0..WORKERS).map(start).collect();
        for worker in workers {
            worker.await.map_err(io::Error::other)??;
        }
        Ok(())
    })
}

async fn work(soak: Arc<Soak>) -> io::Result<()> {
    let mut stream = connect(&soak.socket()).await?;
    let mut request = Protocol::Classic.ask();
    let mut answer = Vec::new();
    loop {
        let begun = Instant::now();
        answered(&soak, &mut stream, &request, &mut answer).await?;
        look_at_wait(&soak, begun.elapsed(), &request);
        match Protocol::Classic.end(&answer, &mut request) {
            Outcome::Job => {
                let noted = soak.ledger().hand_out(&String::from_utf8_lossy(&answer));
                noted.unwrap_or_else(|text| soak.fault(text));
            }
            // Single tasks may still be added.
            Outcome::Nothing if soak.is_draining() && soak.ledger().left(tasks::RUN) == 0 => {
                return Ok(());
            }
            Outcome::Nothing => {
                tokio::time::sleep(IDLE).await;
                request = Protocol::Classic.ask();
            }
            Outcome::Fault(text) => return Err(io::Error::other(format!("answer {text:?}"))),
        }
    }
}

/// Says a request until it is answered.
async fn answered(
    soak: &Soak,
    stream: &mut UnixStream,
    request: &[u8],
    answer: &mut Vec<u8>,
) -> io::Result<()> {
    loop {
        answer.clear();
        let said = exchange(stream, Protocol::Classic, false, request, answer).await;
        if said.is_ok() && Protocol::Classic.is_whole(answer) {
            return Ok(());
        }
        let request = String::from_utf8_lossy(request);
        soak.fault(format!("no answer to {request:?}: {said:?}, read {}", answer.len()));
        tokio::time::sleep(UNANSWERED).await;
        *stream = connect(&soak.socket()).await?;
    }
}

fn look_at_wait(soak: &Soak, waited: Duration, request: &[u8]) {
    let mut figures = soak.figures();
    figures.wait = figures.wait.max(waited);
    drop(figures);
    if waited > WAIT_MAX {
        let request = String::from_utf8_lossy(request);
        soak.fault(format!("a worker waited {waited:?} for its answer to {request:?}"));
    }
}
