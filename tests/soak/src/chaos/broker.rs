//! Relays over a RabbitMQ broker, their daemons, and what is done to that broker: `make soak-broker`.
//!
//! The broker is the one that `tests/broker-server.sh` started, which kills it and starts it again when it is told. The queue is
//! in a file and has one daemon, or on a server and has three; relays are three.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use rusqlite::Connection;
use rustix::process::{Pid, Signal};
use serde_json::Value;
use shiftboss_testbed::processes::send;
use shiftboss_testbed::proxy::Proxy;
use shiftboss_testbed::server::Stop;

use super::daemons::Daemon;
use super::faults::{Held, OfServer};
use super::postgres::{self, Postgres};
use super::site::{Hub, Site, unsound};
use crate::random::Random;

const RELAYS: usize = 3;
/// Of a queue on a server.
const DAEMONS: usize = 3;
/// A connection that failed is made again after a minute at most.
const RECOVERY_MAX: Duration = Duration::from_secs(75);
/// What is fine with the broker, and what raises its alarm.
const WATERMARKS: [&str; 2] = ["0.6", "0"];

/// What must be true of a file, and gives 0 then.
const SOUND: [(&str, &str); 4] = [
    ("rows are left undispatched", "SELECT count(*) FROM queue WHERE is_dequeued = 0"),
    ("attempts have no end", "SELECT count(*) FROM keys WHERE attempt IS NOT NULL"),
    (
        "relays are lost",
        "SELECT count(*) FROM documents WHERE name LIKE 'relay/%' AND value ->> 'gone' IS NOT NULL",
    ),
    (
        "pages are damaged",
        "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    ),
];

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
    database: Database,
}

enum Database {
    File(PathBuf),
    Server(Postgres),
}

/// # Errors
/// When something does not start.
pub fn site(program: &Path, place: &Place, is_shared: bool) -> io::Result<Site> {
    let home = tempfile::tempdir()?;
    let database = if is_shared {
        Database::Server(Postgres::start(false)?)
    } else {
        Database::File(home.path().join("state.db"))
    };
    let prefix = format!("soak-{}-{is_shared}.", std::process::id());
    let (place, program) = (place.clone(), program.to_owned());
    let broker = Broker { place, prefix, program, database };
    let daemons = (0..if is_shared { DAEMONS } else { 1 }).map(|number| format!("daemon{number}"));
    let relays = (0..RELAYS).map(|number| format!("relay{number}"));
    let start = |name: String| {
        let proxy = Proxy::to_broker(&broker.place.broker)?;
        let arguments = broker.arguments(&name, &proxy.url);
        Daemon::new(name, &broker.program, home.path(), (proxy, arguments), None)
    };
    let daemons = daemons.chain(relays).map(start).collect::<Result<_, _>>()?;
    Ok(Site { daemons, hub: Box::new(broker), _home: home })
}

impl Broker {
    /// Of a daemon or a relay, by its name.
    fn arguments(&self, name: &str, url: &str) -> Vec<String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let prefix = ["--broker-prefix", &*self.prefix];
        if name.starts_with("relay") {
            return words(&["relay", url, "input", "socket", "--name", name, prefix[0], prefix[1]]);
        }
        let mut arguments = match &self.database {
            Database::File(file) => postgres::arguments(&file.to_string_lossy()),
            Database::Server(server) => postgres::arguments(&server.url()),
        };
        arguments.extend::<Vec<String>>(words(&["--broker", url, prefix[0], prefix[1]]));
        if matches!(self.database, Database::Server(_)) {
            arguments.extend::<Vec<String>>(words(&["--daemon-name", name]));
        }
        arguments
    }

    fn set_watermark(&self, watermark: &str) -> io::Result<()> {
        let mut command = Command::new(&self.place.broker_ctl);
        let output = command.args(["set_vm_memory_high_watermark", watermark]).output()?;
        if output.status.success() { Ok(()) } else { Err(io::Error::other(format!("{output:?}"))) }
    }

    /// Messages that are in its queues, of whatever kind.
    fn messages(&self) -> io::Result<Vec<String>> {
        let mut check = Command::new(&self.program);
        check.args([
            "broker",
            "check",
            "--json",
            &self.place.broker,
            "--broker-prefix",
            &self.prefix,
        ]);
        let output = check.output()?;
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
        if matches!(self.database, Database::Server(_)) {
            all.extend([OfServer::Restarted(Stop::Fast), OfServer::Restarted(Stop::Kill)]);
        }
        random.shuffle(&mut all);
        all
    }

    fn begin(&mut self, fault: OfServer, time: Duration) -> io::Result<Held> {
        match (fault, &mut self.database) {
            (OfServer::BrokerKilled, _) => {
                let pid = Pid::from_raw(self.place.broker_pid);
                send(pid.ok_or_else(|| io::Error::other("no process"))?, Signal::USR1)?;
            }
            (OfServer::Alarm, _) => self.set_watermark(WATERMARKS[1])?,
            (fault, Database::Server(server)) => return server.begin(fault, time),
            (_, Database::File(_)) => {}
        }
        Ok(Held::default())
    }

    fn end(&mut self, fault: OfServer) -> io::Result<()> {
        match (fault, &mut self.database) {
            (OfServer::Alarm, _) => self.set_watermark(WATERMARKS[0]),
            (fault, Database::Server(server)) => server.end(fault),
            (_, Database::File(_)) => Ok(()),
        }
    }

    fn left(&self) -> io::Result<Vec<String>> {
        let mut left = match &self.database {
            Database::Server(server) => server.left()?,
            Database::File(file) => {
                let file = Connection::open(file).map_err(io::Error::other)?;
                unsound(&SOUND, |sql| {
                    let count = file.query_row(sql, [], |row| row.get::<_, i64>(0));
                    count.map(|count| count.to_string()).map_err(io::Error::other)
                })?
            }
        };
        if left.is_empty() {
            left = self.messages()?;
        }
        Ok(left)
    }

    fn logged(&self) -> io::Result<Vec<(String, Option<i64>)>> {
        match &self.database {
            Database::Server(server) => server.logged(),
            Database::File(file) => read_log(file).map_err(io::Error::other),
        }
    }
}

fn read_log(file: &Path) -> rusqlite::Result<Vec<(String, Option<i64>)>> {
    let file = Connection::open(file)?;
    let mut log = file.prepare("SELECT attr_path, exit_code FROM log")?;
    let rows = log.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}
