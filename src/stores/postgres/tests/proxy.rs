//! Stands between a store and its server, and holds back what they say to each other.

use std::path::PathBuf;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio_postgres::config::{Config, Host};

/// What is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Held {
    Nothing,
    Answers,
    All,
}

/// Ends with the runtime that it was made on.
pub struct Proxy {
    /// The database, by way of this proxy.
    pub url: String,
    held: watch::Sender<Held>,
    _directory: TempDir,
}

enum Target {
    Socket(PathBuf),
    Host(String, u16),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Target {
    fn of(url: &str) -> Self {
        let config: Config = url.parse().unwrap();
        let port = config.get_ports().first().copied().unwrap_or(5432);
        match &config.get_hosts()[0] {
            Host::Unix(directory) => Self::Socket(directory.join(format!(".s.PGSQL.{port}"))),
            Host::Tcp(host) => Self::Host(host.clone(), port),
        }
    }

    async fn connect(&self) -> Box<dyn Stream> {
        match self {
            Self::Socket(path) => Box::new(UnixStream::connect(path).await.unwrap()),
            Self::Host(host, port) => {
                Box::new(TcpStream::connect((host.as_str(), *port)).await.unwrap())
            }
        }
    }
}

impl Proxy {
    /// To the database of a URL. Works on the runtime that it is made on.
    pub fn new(url: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join(".s.PGSQL.5432")).unwrap();
        let config: Config = url.parse().unwrap();
        let (user, database) = (config.get_user().unwrap(), config.get_dbname().unwrap());
        let place = directory.path().to_str().unwrap().replace('/', "%2F");
        let (held, watched) = watch::channel(Held::Nothing);
        let target = Arc::new(Target::of(url));
        let proxied = format!("postgres://{user}@{place}/{database}");
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (mut asking, mut answering) = tokio::io::split(client);
                let (mut answers, mut questions) = tokio::io::split(target.connect().await);
                let (forth, back) = (watched.clone(), watched.clone());
                tokio::spawn(
                    async move { pass(&mut asking, &mut questions, forth, Held::All).await },
                );
                tokio::spawn(async move {
                    pass(&mut answers, &mut answering, back, Held::Answers).await
                });
            }
        });
        Self { url: proxied, held, _directory: directory }
    }

    /// Nothing arrives any more, in neither direction; what is sent is kept.
    pub fn hold(&self) {
        self.held.send_replace(Held::All);
    }

    /// What the server answers is kept.
    pub fn hold_answers(&self) {
        self.held.send_replace(Held::Answers);
    }

    /// Passes on what was kept, too.
    pub fn release(&self) {
        self.held.send_replace(Held::Nothing);
    }
}

/// Passes one direction on, which waits while that or all is held.
async fn pass(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    mut held: watch::Receiver<Held>,
    direction: Held,
) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        let may_pass = |held: &Held| {
            *held == Held::Nothing || *held == Held::Answers && direction == Held::All
        };
        if held.wait_for(may_pass).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
    _ = to.shutdown().await;
}
