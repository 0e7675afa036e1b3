//! Stands between a daemon or a relay and its server or broker, and holds back, or cuts off, what they say to each other. By TCP.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use tokio_postgres::config::{Config, Host};

/// What is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    Answers,
    All,
}

/// Works on a thread of its own until it is dropped.
pub struct Proxy {
    /// The database or the broker, by way of this proxy.
    pub url: String,
    orders: Arc<Orders>,
}

struct Orders {
    held: watch::Sender<Held>,
    /// Raised to end all connections that there are; those to come are ended at once while `refuses`.
    cuts: watch::Sender<u64>,
    rest: Mutex<Rest>,
}

#[derive(Default)]
struct Rest {
    refuses: bool,
    /// The bytes that still pass before all is cut.
    bytes: Option<usize>,
}

#[derive(Clone)]
enum Target {
    Socket(PathBuf),
    Host(String, u16),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Target {
    fn of(config: &Config) -> Option<Self> {
        let port = config.get_ports().first().copied().unwrap_or(5432);
        Some(match config.get_hosts().first()? {
            Host::Unix(directory) => Self::Socket(directory.join(format!(".s.PGSQL.{port}"))),
            Host::Tcp(host) => Self::Host(host.clone(), port),
        })
    }

    async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path).await?),
            Self::Host(host, port) => Box::new(TcpStream::connect((host.as_str(), *port)).await?),
        })
    }
}

impl Proxy {
    /// To the database of a URL.
    ///
    /// # Errors
    /// When the URL has no host, or there is no port to listen at.
    pub fn new(url: &str) -> io::Result<Self> {
        let config: Config = url.parse().map_err(io::Error::other)?;
        let target = Target::of(&config).ok_or_else(|| io::Error::other("a URL without a host"))?;
        Self::between(target, |address| proxied(&config, address))
    }

    /// To the broker of a URL that has a host and a port.
    ///
    /// # Errors
    /// When it has not, or there is no port to listen at.
    pub fn to_broker(url: &str) -> io::Result<Self> {
        let place = url.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next());
        let (host, port) = place
            .and_then(|place| place.split_once(':'))
            .and_then(|(host, port)| Some((host, port.parse().ok()?)))
            .ok_or_else(|| io::Error::other("a URL without a port"))?;
        let old = format!("@{host}:{port}");
        let target = Target::Host(host.to_owned(), port);
        Self::between(target, |address| url.replace(&old, &format!("@{address}")))
    }

    fn between(target: Target, proxied: impl FnOnce(SocketAddr) -> String) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let (held, cuts) = (watch::Sender::new(Held::Nothing), watch::Sender::new(0));
        let orders = Arc::new(Orders { held, cuts, rest: Mutex::default() });
        let url = proxied(listener.local_addr()?);
        let heard = Arc::clone(&orders);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        thread::spawn(move || runtime.block_on(serve(listener, target, heard)));
        Ok(Self { url, orders })
    }

    /// Nothing arrives any more, in neither direction; what is sent is kept.
    pub fn hold(&self) {
        self.orders.held.send_replace(Held::All);
    }

    /// What the server answers is kept.
    pub fn hold_answers(&self) {
        self.orders.held.send_replace(Held::Answers);
    }

    /// Passes on what was kept, too, and lets new connections in.
    pub fn release(&self) {
        *self.orders.rest() = Rest::default();
        self.orders.held.send_replace(Held::Nothing);
    }

    /// After so many more bytes, in whichever direction, all connections are cut.
    pub fn cut_after(&self, bytes: usize) {
        self.orders.rest().bytes = Some(bytes);
    }

    /// Cuts all connections, and lets no new one in.
    pub fn refuse(&self) {
        self.orders.rest().refuses = true;
        self.orders.cut();
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The last one: its thread ends.
        self.orders.cuts.send_replace(u64::MAX);
    }
}

impl Orders {
    fn rest(&self) -> std::sync::MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// How many of these bytes pass; with fewer than all it is cut there.
    fn pass(&self, bytes: usize) -> usize {
        let mut rest = self.rest();
        let Some(left) = rest.bytes else { return bytes };
        rest.bytes = left.checked_sub(bytes);
        bytes.min(left)
    }
}

fn proxied(config: &Config, address: SocketAddr) -> String {
    let (user, database) =
        (config.get_user().unwrap_or_default(), config.get_dbname().unwrap_or_default());
    format!("postgres://{user}@{address}/{database}")
}

async fn serve(listener: TcpListener, target: Target, orders: Arc<Orders>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let mut cuts = orders.cuts.subscribe();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted && !orders.rest().refuses {
                    tokio::spawn(connect(client, target.clone(), Arc::clone(&orders)));
                }
            }
            ended = cuts.wait_for(|cuts| *cuts == u64::MAX) => {
                drop(ended);
                return;
            }
        }
    }
}

async fn connect(mut client: TcpStream, target: Target, orders: Arc<Orders>) {
    let mut cuts = orders.cuts.subscribe();
    // A server that is not there: the connection ends.
    let Ok(server) = target.connect().await else { return };
    let (mut asking, mut answering) = client.split();
    let (mut answers, mut questions) = tokio::io::split(server);
    let passed = async {
        tokio::join!(
            pass(&mut asking, &mut questions, &orders, Held::All),
            pass(&mut answers, &mut answering, &orders, Held::Answers)
        )
    };
    tokio::select! {
        _ = passed => {}
        _ = cuts.changed() => {}
    }
}

/// Passes one direction on, which waits while that or all is held.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    orders: &Orders,
    direction: Held,
) {
    let (mut held, mut bytes) = (orders.held.subscribe(), vec![0; 65_536]);
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let may_pass = |held: &Held| {
            *held == Held::Nothing || *held == Held::Answers && direction == Held::All
        };
        if held.wait_for(may_pass).await.is_err() {
            break;
        }
        let passing = orders.pass(read);
        if to.write_all(&bytes[..passing]).await.is_err() {
            break;
        }
        if passing < read {
            // Gone to the kernel, so it arrives.
            orders.cut();
        }
    }
    // The other side may have ended.
    _ = to.shutdown().await;
}
