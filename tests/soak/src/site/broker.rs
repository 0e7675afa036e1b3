//! Relays over a RabbitMQ broker, their daemons, and what is done to that broker: `make soak-broker`.
//!
//! The broker is the one that `tests/broker-server.sh` started, which kills it and starts it again when it is told. The queue is
//! in a file and has one daemon, or on a server and has three; relays are three.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use shiftboss_testbed::processes::send;
use shiftboss_testbed::proxy::Proxy;
use shiftboss_testbed::server::Stop;

use super::file::File;
use super::postgres::{self, Postgres};
use super::{Daemon, Hub, Site};
use crate::faults::OfServer;
use crate::random::Random;

const RELAYS: usize = 3;
/// Of a queue on a server.
const DAEMONS: usize = 3;
/// A connection that failed is made again after a minute at the most.
const RECOVERY_MAX: Duration = Duration::from_secs(75);
/// What is fine with the broker, and what raises its alarm.
const WATERMARKS: [&str; 2] = ["0.6", "0"];

/// Which broker it is.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The broker's URL; its user may declare queues
    #[arg(long, env = "SHIFTBOSS_TEST_BROKER", hide_env_values = true)]
    broker: String,
    /// The process that kills the broker and starts it again when it gets SIGUSR1
    #[arg(long, env = "SHIFTBOSS_TEST_BROKER_PID")]
    broker_pid: i32,
    /// The program that is its rabbitmqctl
    #[arg(long, env = "SHIFTBOSS_TEST_BROKER_CTL")]
    broker_ctl: PathBuf,
}

/// A broker, and the database of its daemons.
struct Broker {
    place: Place,
    prefix: String,
    program: PathBuf,
    database: Box<dyn Hub>,
    is_shared: bool,
}

pub fn site(program: &Path, place: Place, is_shared: bool) -> io::Result<Site> {
    let home = tempfile::tempdir()?;
    let (database, url): (Box<dyn Hub>, _) = if is_shared {
        let server = Postgres::start(false)?;
        let url = server.url();
        (Box::new(server), url)
    } else {
        let file = home.path().join("state.db");
        (Box::new(File(file.clone())), file.to_string_lossy().into_owned())
    };
    let (serve, prefix) = (postgres::arguments(&url), format!("soak-{}.", std::process::id()));
    let start = |name: String| {
        let proxy = Proxy::to_broker(&place.broker)?;
        let (words, own) = match (name.starts_with("relay"), is_shared) {
            (true, _) => (&[][..], vec!["relay", &proxy.url, "input", "socket", "--name", &name]),
            (_, true) => (&serve[..], vec!["--broker", &proxy.url, "--daemon-name", &name]),
            (_, false) => (&serve[..], vec!["--broker", &proxy.url]),
        };
        let own = own.into_iter().chain(["--broker-prefix", &prefix]).map(str::to_owned);
        let arguments = words.iter().cloned().chain(own).collect();
        Daemon::new(&name, program, home.path(), Some(proxy), arguments, None)
    };
    let daemons = (0..if is_shared { DAEMONS } else { 1 }).map(|number| format!("daemon{number}"));
    let relays = (0..RELAYS).map(|number| format!("relay{number}"));
    let daemons = daemons.chain(relays).map(start).collect::<Result<_, _>>()?;
    let program = program.to_owned();
    let hub = Box::new(Broker { place, prefix, program, database, is_shared });
    Ok(Site { daemons, hub, _home: home })
}

impl Broker {
    fn set_watermark(&self, watermark: &str) -> io::Result<()> {
        let mut command = Command::new(&self.place.broker_ctl);
        let output = command.args(["set_vm_memory_high_watermark", watermark]).output()?;
        if output.status.success() { Ok(()) } else { Err(io::Error::other(format!("{output:?}"))) }
    }

    /// Messages that are in its queues, of whatever kind.
    fn messages(&self) -> io::Result<Vec<String>> {
        let mut check = Command::new(&self.program);
        check.args(["broker", "check", "--json", &self.place.broker]);
        let output = check.args(["--broker-prefix", &self.prefix]).output()?;
        if !output.status.success() {
            return Ok(vec![format!("the broker is not as it should be: {output:?}")]);
        }
        let shown: Value = serde_json::from_slice(&output.stdout)?;
        let parts = shown["parts"].as_array().into_iter().flatten();
        let waiting = parts.filter(|part| part["messages"].as_u64().is_some_and(|count| count > 0));
        Ok(waiting.map(|part| format!("messages are left: {part}")).collect())
    }
}

impl Hub for Broker {
    fn recovery_max(&self) -> Duration {
        RECOVERY_MAX
    }

    fn faults(&self, random: &mut Random) -> Vec<OfServer> {
        let mut all = vec![OfServer::BrokerKilled, OfServer::Alarm];
        if self.is_shared {
            all.extend([OfServer::Restarted(Stop::Fast), OfServer::Restarted(Stop::Kill)]);
        }
        random.shuffle(&mut all);
        all
    }

    fn begin(&mut self, fault: OfServer, time: Duration) -> io::Result<()> {
        match fault {
            OfServer::BrokerKilled => {
                let pid = Pid::from_raw(self.place.broker_pid);
                send(pid.ok_or_else(|| io::Error::other("no process"))?, Signal::USR1)
            }
            OfServer::Alarm => self.set_watermark(WATERMARKS[1]),
            fault => self.database.begin(fault, time),
        }
    }

    fn end(&mut self, fault: OfServer) -> io::Result<()> {
        match fault {
            OfServer::Alarm => self.set_watermark(WATERMARKS[0]),
            fault => self.database.end(fault),
        }
    }

    fn left(&self) -> io::Result<Vec<String>> {
        let left = self.database.left()?;
        if left.is_empty() { self.messages() } else { Ok(left) }
    }

    fn logged(&self) -> io::Result<Vec<(String, Option<i64>)>> {
        self.database.logged()
    }
}
