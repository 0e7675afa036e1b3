//! Connections of `shiftboss web`, which nobody holds for ever: one on which nothing goes on is closed, and where there are too many, a
//! new one takes the place of the one that has waited longest. So whoever asks for `/healthz` always gets in.
//!
//! [`Connections::note`] is told of each connection, [`watch`] of what goes on there. The server itself refuses heads that are slow
//! or too large; what it would wait for without end is a head behind the first one, a body, and a client that reads no answer.

use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use actix_web::Error;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use rustix::net::{Shutdown, shutdown};
use rustix::process::{Resource, getrlimit};
use tracing::{debug, warn};

/// Connections that are open at once, where the limit on open files leaves room for them.
const CONNECTIONS_MAX: usize = 1_024;
/// Descriptors of each: the server's, and the one by which it is closed here.
const DESCRIPTORS_EACH: usize = 2;
/// Descriptors for all else: the database, the daemon's socket, outputs, connections that are about to be closed.
const DESCRIPTORS_ELSE: usize = 128;
/// After this time without progress a connection is closed; no answer takes as long to make.
const STALLED_MAX: Duration = Duration::from_secs(15);
/// How often stalled ones are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// What a client must have read of an answer before the next piece: this much in [`STALLED_MAX`].
const PIECE_BYTES: usize = 32 * 1024;

/// An open connection.
struct Connection {
    socket: OwnedFd,
    /// When it came, a request's head was complete, or a piece of an answer was taken.
    progressed: Mutex<Instant>,
}

impl Connection {
    fn progressed(&self) -> MutexGuard<'_, Instant> {
        self.progressed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server sees that its client is gone, and gives up what it has of it.
    fn close(&self) {
        // One that its client closed is closed.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// Those that are open, by number.
#[derive(Default)]
struct Open {
    last: u64,
    by_number: HashMap<u64, Arc<Connection>>,
}

#[derive(Clone)]
pub(super) struct Connections {
    open: Arc<Mutex<Open>>,
    max: usize,
}

/// What a connection carries with it until it ends.
struct Noted {
    number: u64,
    connection: Arc<Connection>,
    all: Connections,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.all.open().by_number.remove(&self.number);
    }
}

impl Connections {
    /// As many as the limit on open files allows, though each of the server's `threads` had as many of which most are closed already.
    pub(super) fn allowed(threads: usize) -> Self {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let descriptors = usize::try_from(descriptors).unwrap_or(usize::MAX);
        let room = descriptors.saturating_sub(DESCRIPTORS_ELSE) / DESCRIPTORS_EACH / threads;
        Self { open: Arc::default(), max: room.clamp(1, CONNECTIONS_MAX) }
    }

    /// What each of the server's threads may have. Beyond it the server accepts none until one has ended; without a descriptor for
    /// the next one it would accept none for half a second. All that are open may be with one thread, and one more takes a place.
    pub(super) fn max_each(&self) -> usize {
        self.max + 1
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a new one, in the place of the one that has waited longest if there are too many.
    pub(super) fn note(&self, stream: &dyn Any, extensions: &mut Extensions) {
        let tcp = stream.downcast_ref().map(actix_rt::net::TcpStream::as_fd);
        let unix = || stream.downcast_ref().map(actix_rt::net::UnixStream::as_fd);
        let Some(socket) = tcp.or_else(unix) else { return };
        let socket = match socket.try_clone_to_owned() {
            Ok(socket) => socket,
            Err(error) => return refuse(socket, &error),
        };
        let connection = Arc::new(Connection { socket, progressed: Mutex::new(Instant::now()) });
        let mut open = self.open();
        if open.by_number.len() >= self.max {
            let longest = open.by_number.iter().min_by_key(|(_, other)| *other.progressed());
            if let Some(number) = longest.map(|(number, _)| *number)
                && let Some(other) = open.by_number.remove(&number)
            {
                other.close();
            }
        }
        open.last += 1;
        let number = open.last;
        open.by_number.insert(number, Arc::clone(&connection));
        extensions.insert(Noted { number, connection, all: self.clone() });
    }

    /// Closes those on which nothing goes on, for ever.
    pub(super) async fn close_stalled(self) {
        let mut looks = tokio::time::interval(LOOK);
        loop {
            looks.tick().await;
            let stalled = |it: &Connection| it.progressed().elapsed() > STALLED_MAX;
            let closed = self
                .open()
                .by_number
                .extract_if(|_, it| stalled(it))
                .inspect(|(_, it)| it.close())
                .count();
            if closed > 0 {
                debug!(closed, "Connections on which nothing went on were closed.");
            }
        }
    }
}

/// Without a descriptor to close it by, it might be held for ever.
fn refuse(socket: impl AsFd, error: &io::Error) {
    warn!("A connection is closed at once: {error}");
    let _ = shutdown(socket, Shutdown::Both);
}

/// Notes that a request came, and how its answer is taken.
pub(super) async fn watch(
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<BoxBody>, Error> {
    let connection = request.conn_data::<Noted>().map(|noted| Arc::clone(&noted.connection));
    let Some(connection) = connection else {
        return Ok(next.call(request).await?.map_into_boxed_body());
    };
    *connection.progressed() = Instant::now();
    let response = next.call(request).await?;
    Ok(response.map_body(|_, body| {
        BoxBody::new(Pieces { body: body.boxed(), left: Bytes::new(), connection })
    }))
}

/// An answer's body in pieces, of which the server takes the next one when there is room for it: the client has read.
struct Pieces {
    body: BoxBody,
    left: Bytes,
    connection: Arc<Connection>,
}

impl MessageBody for Pieces {
    type Error = Box<dyn std::error::Error>;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        if self.left.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_next(context)) {
                Some(Ok(bytes)) => self.left = bytes,
                end => return Poll::Ready(end),
            }
        }
        *self.connection.progressed() = Instant::now();
        let piece = PIECE_BYTES.min(self.left.len());
        Poll::Ready(Some(Ok(self.left.split_to(piece))))
    }
}
