//! Daemons that serve relays, and their relays, each in a directory of its own.
//!
//! Each has names of its own on the broker; the queues stay there when it is gone.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;

use super::Stage;
use super::client::Client;
use crate::servers::{Server, new_home};

/// A daemon. It has ended when this is dropped.
pub struct Installation {
    pub daemon: Server,
    _home: TempDir,
    prefix: String,
}

/// What nobody else's names on the broker begin with.
pub fn new_prefix() -> String {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let number = STARTED.fetch_add(1, Ordering::Relaxed);
    format!("bench-{}-{number}.", std::process::id())
}

/// A relay of it.
pub struct Relay {
    pub server: Server,
    _home: TempDir,
}

impl Installation {
    pub fn start(stage: &Stage) -> io::Result<Self> {
        let (home, prefix) = (new_home()?, new_prefix());
        let flags = ["--broker", &stage.setting.broker, "--broker-prefix", &prefix];
        let mut daemon = Server::shiftboss(stage.program, home.path(), &flags)?;
        // Queues are declared before.
        daemon.wait(|daemon| Ok(daemon.log()?.contains("Relays are served.")))?;
        Ok(Self { daemon, _home: home, prefix })
    }

    /// One of several daemons that share a queue on a server.
    pub fn on_server(stage: &Stage, url: &str, name: &str, prefix: &str) -> io::Result<Self> {
        let home = new_home()?;
        let flags = ["--broker", &stage.setting.broker, "--broker-prefix", prefix];
        let mut daemon = Server::on_postgres(stage.program, home.path(), url, name, &flags)?;
        daemon.wait(|daemon| Ok(daemon.log()?.contains("Relays are served.")))?;
        Ok(Self { daemon, _home: home, prefix: prefix.to_owned() })
    }

    pub fn relay(&self, stage: &Stage) -> io::Result<Relay> {
        self.start_relay(stage, &stage.setting.broker, &[])
    }

    /// By another URL of the broker.
    pub fn relay_by(&self, stage: &Stage, broker: &str) -> io::Result<Relay> {
        self.start_relay(stage, broker, &[])
    }

    pub fn relay_with(&self, stage: &Stage, flags: &[&str]) -> io::Result<Relay> {
        self.start_relay(stage, &stage.setting.broker, flags)
    }

    fn start_relay(&self, stage: &Stage, broker: &str, flags: &[&str]) -> io::Result<Relay> {
        let home = new_home()?;
        let server = Server::relay(stage.program, home.path(), broker, &self.prefix, flags)?;
        Ok(Relay { server, _home: home })
    }

    /// Says to all relays that there may be work.
    pub fn hint(&self, client: &Client) -> io::Result<()> {
        client.publish(&format!("{}hint", self.prefix))
    }

    /// Messages with rows that no daemon has.
    pub fn messages(&self, client: &Client) -> io::Result<u32> {
        let queue = |range: u8| client.messages(&format!("{}write.{range:02x}", self.prefix));
        (0..16).map(queue).sum()
    }
}
