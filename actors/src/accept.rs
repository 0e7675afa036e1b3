//! Accepts sockets through a shortage of descriptors. Used by the ListenerActor.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use tokio::net::{UnixListener, UnixStream};

/// Pause after an accept that failed: it would fail again at once, and the loop would spin.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener and a descriptor in reserve.
pub(crate) struct Acceptor {
    listener: UnixListener,
    /// Given up for a moment when descriptors run out, to take a waiting connection and close it:
    /// its worker then hears at once instead of never.
    spare: Option<File>,
}

impl Acceptor {
    pub(crate) fn new(listener: UnixListener) -> Self {
        Self { listener, spare: reserve() }
    }

    /// The next connection. After an error it has already waited a moment.
    pub(crate) async fn accept(&mut self) -> io::Result<UnixStream> {
        match self.listener.accept().await {
            Ok((stream, _)) => Ok(stream),
            Err(error) => {
                if is_shortage(&error) && self.spare.take().is_some() {
                    let refused = self.listener.accept().await;
                    drop(refused);
                    self.spare = reserve();
                }
                tokio::time::sleep(PAUSE).await;
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
