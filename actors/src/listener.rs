//! ListenerActor: accepts workers' sockets and starts a ConnectionActor for each.
//!
//! The tree starts it last, with a bound socket. It limits how many connections there are, lives
//! through a shortage of descriptors, and binds anew when the socket's file was removed. It reads
//! and writes nothing on a connection.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix::prelude::*;
use futures_util::stream::{self, Stream};
use rustix::io::Errno;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::connection::{ConnectionActor, WorkLinks};
use crate::exit_notifier::ExitNotifier;

const REBIND_EVERY: Duration = Duration::from_secs(2);
/// Pause after an accept that failed: it would fail again at once, and the loop would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

pub trait SocketBinder {
    fn open(&mut self) -> io::Result<UnixListener>;

    /// A new listener if the present one can no longer be reached; `None` while it can.
    fn rebind(&mut self) -> io::Result<Option<UnixListener>>;
}

/// Stops accepting, and has every connection finish its request; answered when all are gone.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct CloseAll;

pub struct ListenerActor {
    binder: Box<dyn SocketBinder>,
    links: WorkLinks,
    connections_max: usize,
    connections: TaskTracker,
    accepting: Option<SpawnHandle>,
    /// Connections closed at once since the start, and accepts that failed: both are logged sparsely.
    refused: u64,
    failed: u64,
    /// Ends all connections, each once its request under way is answered.
    closing: CancellationToken,
    _exit_notifier: ExitNotifier,
}

impl ListenerActor {
    /// Starts accepting on `listener`, at most `connections_max` at once.
    pub fn start(
        listener: UnixListener,
        binder: Box<dyn SocketBinder>,
        links: WorkLinks,
        connections_max: usize,
        exit_notifier: ExitNotifier,
    ) -> Addr<Self> {
        Self::create(|ctx| {
            let accepting = Some(ctx.add_stream(accepted(listener)));
            Self {
                binder,
                links,
                connections_max,
                connections: TaskTracker::new(),
                accepting,
                refused: 0,
                failed: 0,
                closing: CancellationToken::new(),
                _exit_notifier: exit_notifier,
            }
        })
    }

    fn admit(&mut self, stream: UnixStream, ctx: &mut Context<Self>) {
        if self.connections.len() >= self.connections_max {
            self.refused += 1;
            self.links.metrics.connection_refused();
            if self.refused.is_power_of_two() {
                warn!(
                    limit = self.connections_max,
                    refused = self.refused,
                    "Too many connections: closing a new one. Raise --max-connections."
                );
            }
            return;
        }
        self.links.metrics.connection_opened();
        let metrics = Arc::clone(&self.links.metrics);
        let actor = ConnectionActor::new(stream, self.links.clone(), self.closing.clone());
        let connection = self.connections.track_future(Context::new().into_future(actor));
        // Its own task, whose handle reports a panic; actix itself would not.
        ctx.spawn(actix::spawn(connection).into_actor(self).map(move |end, _, _| {
            metrics.connection_closed();
            if end.is_err_and(|end| end.is_panic()) {
                error!("A connection panicked; its job is back in the queue. Please report this.");
            }
        }));
    }

    fn rebind(&mut self, ctx: &mut Context<Self>) {
        if self.closing.is_cancelled() {
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

/// All connections of a listener, and the errors in between; each error comes after a short pause.
fn accepted(listener: UnixListener) -> impl Stream<Item = io::Result<UnixStream>> {
    // A spare descriptor, given up for a moment when descriptors run out, to accept a waiting connection and close it.
    // So its worker learns at once that it is not served, instead of never.
    let spare = reserve();
    stream::unfold((listener, spare), |(listener, mut spare)| async move {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        if let Err(error) = &accepted {
            if is_shortage(error) && spare.take().is_some() {
                drop(listener.accept().await);
                spare = reserve();
            }
            tokio::time::sleep(ACCEPT_PAUSE).await;
        }
        Some((accepted, (listener, spare)))
    })
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
            Ok(stream) if !self.closing.is_cancelled() => self.admit(stream, ctx),
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
        self.closing.cancel();
        if let Some(accepting) = self.accepting.take() {
            ctx.cancel_future(accepting);
        }
        self.connections.close();
        let connections = self.connections.clone();
        Box::pin(async move { connections.wait().await })
    }
}
