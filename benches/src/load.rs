//! The load generator: one process, many connections, one request in flight on each.
//!
//! Called by the rows; the soak connects by it. It drives any server that speaks a [`Protocol`] over a Unix socket, and
//! uses the same code for all, so that only the servers differ.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::LocalSet;

use crate::protocol::{Outcome, Protocol};

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What is asked of a server, and for how long.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The servers' sockets: the connections are spread over them.
    pub sockets: Vec<PathBuf>,
    /// Its language.
    pub protocol: Protocol,
    /// Connections at once.
    pub connections: usize,
    /// Whether each request has a connection of its own, half-closed after it.
    pub one_request_each: bool,
    /// How long it is measured; less when the work runs out.
    pub time: Duration,
    /// Requests after which it ends.
    pub requests: usize,
    /// Go on asking when there is no work: NOJOBS is what is measured.
    pub without_work: bool,
    /// Whose tasks each connection takes, in turn; none: all take everybody's.
    pub fetchers: Vec<String>,
}

impl Plan {
    /// As workers ask that go on until the work or the time runs out.
    #[must_use]
    pub fn at(
        sockets: Vec<PathBuf>,
        protocol: Protocol,
        connections: usize,
        time: Duration,
    ) -> Self {
        let (one_request_each, requests, without_work) = (false, usize::MAX, false);
        let fetchers = Vec::new();
        Self {
            sockets,
            protocol,
            connections,
            one_request_each,
            time,
            requests,
            without_work,
            fetchers,
        }
    }
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// Requests a second.
    pub rate: f64,
    /// Round trips, sorted.
    trips: Vec<Duration>,
}

impl Load {
    fn new(mut trips: Vec<Duration>, elapsed: Duration) -> Self {
        trips.sort_unstable();
        Self { rate: trips.len() as f64 / elapsed.as_secs_f64(), trips }
    }

    /// Several measurements of the same as one: the rate in the middle, and all round trips.
    #[must_use]
    pub fn of_rounds(rounds: Vec<Self>) -> Self {
        let rates: Vec<f64> = rounds.iter().map(|load| load.rate).collect();
        let mut trips: Vec<Duration> = rounds.into_iter().flat_map(|load| load.trips).collect();
        trips.sort_unstable();
        Self { rate: median(&rates), trips }
    }

    /// Requests that were answered.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.trips.len()
    }

    /// The round trip that `share` of all did not exceed.
    #[must_use]
    pub fn trip(&self, share: f64) -> Duration {
        let last = self.trips.len().saturating_sub(1);
        self.trips.get((share * last as f64).round() as usize).copied().unwrap_or_default()
    }
}

/// Runs a plan to its end.
///
/// # Errors
/// When the server cannot be reached, or answers what no worker could use.
pub fn run(plan: &Plan) -> io::Result<Load> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, drive(plan))
}

async fn drive(plan: &Plan) -> io::Result<Load> {
    let begun = Instant::now();
    let until = begun + plan.time;
    let asked = Rc::new(Cell::new(0));
    let sockets = plan.sockets.iter().cycle().take(plan.connections);
    let workers: Vec<_> = sockets
        .enumerate()
        .map(|(at, socket)| {
            let fetcher = plan.fetchers.get(at % plan.fetchers.len().max(1)).cloned();
            let plan = Plan { fetchers: fetcher.into_iter().collect(), ..plan.clone() };
            let worker = worker(plan, socket.clone(), until, Rc::clone(&asked));
            tokio::task::spawn_local(worker)
        })
        .collect();
    let mut trips = Vec::new();
    for worker in workers {
        trips.extend(worker.await.map_err(io::Error::other)??);
    }
    Ok(Load::new(trips, begun.elapsed().min(plan.time)))
}

async fn worker(
    plan: Plan,
    socket: PathBuf,
    until: Instant,
    asked: Rc<Cell<usize>>,
) -> io::Result<Vec<Duration>> {
    let mut trips = Vec::new();
    let mut request = plan.protocol.ask();
    let mut answer = Vec::new();
    let mut connection = None;
    while Instant::now() < until && asked.get() < plan.requests {
        asked.set(asked.get() + 1);
        if let Some(fetcher) = plan.fetchers.first() {
            request = of_fetcher(&request, fetcher);
        }
        let begun = Instant::now();
        let mut stream = match connection.take() {
            Some(stream) => stream,
            None => connect(&socket).await?,
        };
        answer.clear();
        exchange(&mut stream, plan.protocol, plan.one_request_each, &request, &mut answer).await?;
        trips.push(begun.elapsed());
        if !plan.one_request_each {
            connection = Some(stream);
        }
        match plan.protocol.end(&answer, &mut request) {
            Outcome::Job => {}
            Outcome::Nothing if plan.without_work => request = plan.protocol.ask(),
            Outcome::Nothing => break,
            Outcome::Fault(text) => return Err(io::Error::other(format!("answer {text:?}"))),
        }
    }
    Ok(trips)
}

/// The same request for the tasks of one fetcher.
fn of_fetcher(request: &[u8], fetcher: &str) -> Vec<u8> {
    let text = String::from_utf8_lossy(request);
    text.replace("fetchers=*", &format!("fetchers={fetcher}")).into_bytes()
}

/// Says one request, and reads the answer to it: until it is whole, or to the end of a connection
/// that is for one request and half-closed after it.
///
/// # Errors
/// When the connection fails, or the answer has no end. One that was cut off is no error.
pub async fn exchange(
    stream: &mut UnixStream,
    protocol: Protocol,
    one_request: bool,
    request: &[u8],
    answer: &mut Vec<u8>,
) -> io::Result<()> {
    stream.write_all(request).await?;
    if one_request {
        stream.shutdown().await?;
    }
    while one_request || !protocol.is_whole(answer) {
        if stream.read_buf(answer).await? == 0 {
            break;
        }
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(io::Error::other("an answer without end"));
        }
    }
    Ok(())
}

/// Connects to a server. A full backlog is no fault: the next moment has room.
///
/// # Errors
/// When nobody listens.
pub async fn connect(socket: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::task::yield_now().await;
            }
            other => return other,
        }
    }
}

/// The one in the middle; zero of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
