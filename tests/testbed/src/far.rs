//! A server that is farther away: what it answers arrives one round trip later, in order and as fast as before.
//!
//! Used by `make bench-postgres`. Threads that sleep, because a runtime's timers know no half of a millisecond.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tokio_postgres::config::{Config, Host};

const BYTES: usize = 65_536;

/// A server of PostgreSQL, by way of a proxy that lives as long as the process.
pub struct Far {
    /// `host:port` for a URL.
    pub address: String,
}

impl Far {
    /// The server of a URL, so far away.
    ///
    /// # Errors
    /// When the URL has no host, or there is no port to listen at.
    pub fn new(url: &str, round_trip: Duration) -> io::Result<Self> {
        let config: Config = url.parse().map_err(io::Error::other)?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // A server that is gone: the client's connection ends.
                _ = connect(&config, client, round_trip);
            }
        });
        Ok(Self { address })
    }
}

fn connect(config: &Config, client: TcpStream, round_trip: Duration) -> io::Result<()> {
    client.set_nodelay(true)?;
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts().first() {
        Some(Host::Unix(directory)) => {
            let server = UnixStream::connect(directory.join(format!(".s.PGSQL.{port}")))?;
            let (asked, end) = (server.try_clone()?, server.try_clone()?);
            pass(client, asked, server, round_trip, move || end.shutdown(Shutdown::Both))
        }
        Some(Host::Tcp(host)) => {
            let server = TcpStream::connect((host.as_str(), port))?;
            server.set_nodelay(true)?;
            let (asked, end) = (server.try_clone()?, server.try_clone()?);
            pass(client, asked, server, round_trip, move || end.shutdown(Shutdown::Both))
        }
        None => Err(io::Error::other("a URL without a host")),
    }
}

/// Three threads: what the client asks, what the server answers, and what has been on its way for long enough.
fn pass(
    client: TcpStream,
    mut asked: impl Write + Send + 'static,
    mut answers: impl Read + Send + 'static,
    round_trip: Duration,
    end: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let (mut asks, mut hears) = (client.try_clone()?, client);
    let (sender, on_their_way) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        // Either side may have ended.
        _ = io::copy(&mut asks, &mut asked);
        _ = end();
    });
    thread::spawn(move || {
        let mut bytes = vec![0; BYTES];
        while let Ok(read @ 1..) = answers.read(&mut bytes) {
            if sender.send((Instant::now() + round_trip, bytes[..read].to_vec())).is_err() {
                break;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in on_their_way {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if hears.write_all(&bytes).is_err() {
                break;
            }
        }
        _ = hears.shutdown(Shutdown::Both);
    });
    Ok(())
}
