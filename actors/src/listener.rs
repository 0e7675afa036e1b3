//! ListenerActor: accepts workers' sockets and starts a ConnectionActor for each.
//!
//! The tree starts it last, with a bound socket. It limits how many connections there are, lives
//! through a shortage of descriptors, and binds anew when the socket's file was removed. It reads
//! and writes nothing on a connection.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::time::Duration;

use actix::prelude::*;
use futures_util::stream::{self, Stream};
use rustix::io::Errno;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::connection::{CloseConnection, ConnectionActor, WorkLinks};
use crate::exit_notifier::ExitNotifier;

/// How often the socket's file is looked for.
const REBIND_EVERY: Duration = Duration::from_secs(2);
/// Pause after an accept that failed: it would fail again at once, and the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub trait SocketBinder {
    /// The listener to begin with.
    fn open(&mut self) -> io::Result<UnixListener>;

    /// A listener to go on with when the present one can no longer be reached; `None` while it can.
    fn rebind(&mut self) -> io::Result<Option<UnixListener>>;
}

/// Stops accepting, and has every connection finish its request; answered when all are gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CloseAll;

/// Accepts workers. See the module's documentation.
pub struct ListenerActor {
    binder: Box<dyn SocketBinder>,
    links: WorkLinks,
    connections_max: usize,
    connections: HashMap<u64, Recipient<CloseConnection>>,
    next_number: u64,
    accepting: Option<SpawnHandle>,
    /// Connections closed at once since the start, and accepts that failed: both log sparsely.
    refused: u64,
    failed: u64,
    closing: bool,
    closed: Vec<oneshot::Sender<()>>,
    _exit_notifier: ExitNotifier<String>,
}

impl ListenerActor {
    /// Starts accepting on `listener`, at most `connections_max` at once.
    pub fn start(
        listener: UnixListener,
        binder: Box<dyn SocketBinder>,
        links: WorkLinks,
        connections_max: usize,
        exit_notifier: ExitNotifier<String>,
    ) -> Addr<Self> {
        Self::create(|ctx| {
            let accepting = Some(ctx.add_stream(accepted(listener)));
            Self {
                binder,
                links,
                connections_max,
                connections: HashMap::new(),
                next_number: 0,
                accepting,
                refused: 0,
                failed: 0,
                closing: false,
                closed: Vec::new(),
                _exit_notifier: exit_notifier,
            }
        })
    }

    fn admit(&mut self, stream: UnixStream, ctx: &mut Context<Self>) {
        if self.connections.len() >= self.connections_max {
            self.refused += 1;
            if self.refused.is_power_of_two() {
                warn!(
                    limit = self.connections_max,
                    refused = self.refused,
                    "Too many connections: closing a new one. Raise --max-connections."
                );
            }
            return;
        }
        let number = self.next_number;
        self.next_number += 1;
        let mut inner = Context::new();
        let address = inner.address();
        let actor = ConnectionActor::new(stream, self.links.clone(), &mut inner);
        // Its own task, whose handle tells of a panic; actix itself would tell nobody.
        let connection = actix::spawn(inner.into_future(actor));
        self.connections.insert(number, address.recipient());
        ctx.spawn(connection.into_actor(self).map(move |end, listener, _| {
            if end.is_err_and(|end| end.is_panic()) {
                error!("A connection panicked; its job is back in the queue. Please report this.");
            }
            listener.connections.remove(&number);
            listener.tell_if_closed();
        }));
    }

    fn tell_if_closed(&mut self) {
        if self.closing && self.connections.is_empty() {
            for waiter in self.closed.drain(..) {
                // A tree that gave up needs no answer.
                let _ = waiter.send(());
            }
        }
    }

    fn rebind(&mut self, ctx: &mut Context<Self>) {
        if self.closing {
            return;
        }
        match self.binder.rebind() {
            Ok(None) => {}
            Ok(Some(listener)) => {
                info!("The socket's file was gone: listening on a new one.");
                if let Some(accepting) = self.accepting.take() {
                    ctx.cancel_future(accepting);
                }
                self.accepting = Some(ctx.add_stream(accepted(listener)));
            }
            Err(error) => {
                error!(%error, "The socket's file is gone and cannot be made anew; trying again.")
            }
        }
    }
}

/// All connections of a listener, and the errors in between.
fn accepted(listener: UnixListener) -> impl Stream<Item = io::Result<UnixStream>> {
    stream::unfold(Acceptor::new(listener), |mut acceptor| async move {
        Some((acceptor.accept().await, acceptor))
    })
}

/// A listener and a descriptor in reserve.
struct Acceptor {
    listener: UnixListener,
    /// Given up for a moment when descriptors run out, to take a waiting connection and close it:
    /// its worker then hears at once instead of never.
    spare: Option<File>,
}

impl Acceptor {
    fn new(listener: UnixListener) -> Self {
        Self { listener, spare: reserve() }
    }

    /// The next connection. After an error it has already waited a moment.
    async fn accept(&mut self) -> io::Result<UnixStream> {
        match self.listener.accept().await {
            Ok((stream, _)) => Ok(stream),
            Err(error) => {
                if is_shortage(&error) && self.spare.take().is_some() {
                    let refused = self.listener.accept().await;
                    drop(refused);
                    self.spare = reserve();
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
                Err(error)
            }
        }
    }
}

fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

fn is_shortage(error: &io::Error) -> bool {
    let code = Errno::from_io_error(error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

impl Actor for ListenerActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_interval(REBIND_EVERY, Self::rebind);
    }
}

impl StreamHandler<io::Result<UnixStream>> for ListenerActor {
    fn handle(&mut self, accepted: io::Result<UnixStream>, ctx: &mut Context<Self>) {
        match accepted {
            Ok(stream) if !self.closing => self.admit(stream, ctx),
            Ok(_) => {}
            Err(error) => {
                self.failed += 1;
                if self.failed.is_power_of_two() {
                    warn!(%error, failed = self.failed, "Accepting a connection failed; going on.");
                }
            }
        }
    }
}

impl Handler<CloseAll> for ListenerActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: CloseAll, ctx: &mut Self::Context) -> Self::Result {
        self.closing = true;
        if let Some(accepting) = self.accepting.take() {
            ctx.cancel_future(accepting);
        }
        for connection in self.connections.values() {
            connection.do_send(CloseConnection);
        }
        let (waiter, closed) = oneshot::channel();
        self.closed.push(waiter);
        self.tell_if_closed();
        Box::pin(async move {
            // An actor that ended has no connection left either.
            let _ = closed.await;
        })
    }
}
