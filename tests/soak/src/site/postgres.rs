//! Four daemons of one queue on a PostgreSQL server, and what is done to that server.
//!
//! `make soak-postgres` has one; the daemons of [`broker`](super::broker) may have their queue on such a server, too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use shiftboss_testbed::processes::{Children, send};
use shiftboss_testbed::proxy::Proxy;
use shiftboss_testbed::server::{PLAIN, PostgresServer, QUEUE, Stop, fill};

use super::{Daemon, Hub, Site, unsound};
use crate::faults::OfServer;
use crate::random::Random;
use crate::workers::CLASSIC_LEASE;

/// Few, so that they can be used up.
const CONNECTIONS_MAX: usize = 30;
/// How far the daemons' clocks are off.
const CLOCKS: [Option<&str>; 4] = [None, Some("+1d"), Some("-1d"), None];
/// Enough for the queue of a run.
const SMALL_DISK: &str = "size=600m";
const RECOVERY_MAX: Duration = Duration::from_secs(20);

/// What must be true of the database, and gives 0 then.
const SOUND: [(&str, &str); 4] = [
    (
        "rows are left undispatched",
        "SELECT count(*) FROM shiftboss_public.queue WHERE is_dequeued = 0",
    ),
    ("keys are left in the order", "SELECT count(*) FROM shiftboss.places WHERE kind = 1"),
    ("attempts have no end", "SELECT count(*) FROM shiftboss.keys WHERE attempt IS NOT NULL"),
    ("daemons are lost", "SELECT count(*) FROM shiftboss.daemons WHERE gone = 'silent'"),
];

/// A server with a database for a queue.
pub struct Postgres {
    server: PostgresServer,
    small_disk: Option<PathBuf>,
    /// What ends with a fault.
    held: Children,
}

pub fn site(program: &Path, fills_disk: bool) -> io::Result<Site> {
    let home = tempfile::tempdir()?;
    let hub = Postgres::start(fills_disk)?;
    let can_fake = Command::new("faketime").arg("--version").output().is_ok();
    if !can_fake {
        println!("all clocks are right: faketime is not installed");
    }
    let start = |(number, clock): (usize, &Option<&'static str>)| {
        let name = format!("daemon{number}");
        let proxy = Proxy::new(&hub.url())?;
        let mut arguments = arguments(&proxy.url);
        arguments.extend(["--daemon-name".to_owned(), name.clone()]);
        let clock = clock.filter(|_| can_fake);
        Daemon::new(&name, program, home.path(), Some(proxy), arguments, clock)
    };
    let daemons = CLOCKS.iter().enumerate().map(start).collect::<Result<_, _>>()?;
    Ok(Site { daemons, hub: Box::new(hub), _home: home })
}

/// Of a daemon.
pub fn arguments(database: &str) -> Vec<String> {
    let lease = format!("{}s", CLASSIC_LEASE.as_secs());
    // Leases are lost on purpose here.
    let words = ["serve", database, "input", "socket", "--max-expired-leases", "1000", "--lease"];
    words.into_iter().chain([&*lease]).map(str::to_owned).collect()
}

impl Postgres {
    pub fn start(fills_disk: bool) -> io::Result<Self> {
        let connections = format!("max_connections={CONNECTIONS_MAX}");
        let server = PostgresServer::start(&[&connections, "fsync=on", "log_checkpoints=off"])?;
        let small_disk = fills_disk.then(|| mount(&server)).transpose()?;
        server.make_queue(small_disk.as_deref())?;
        Ok(Self { server, small_disk, held: Children::default() })
    }

    /// Of the database.
    pub fn url(&self) -> String {
        self.server.url(PLAIN, QUEUE)
    }

    /// What fills the small disk.
    fn filler(&self) -> PathBuf {
        self.small_disk.clone().unwrap_or_default().join("filler")
    }

    fn kill_backend(&self) -> io::Result<()> {
        let one = format!("SELECT pid FROM pg_stat_activity WHERE usename = '{PLAIN}' LIMIT 1");
        let pid = self.server.query("postgres", &one)?.parse().ok().and_then(Pid::from_raw);
        pid.map_or(Ok(()), |pid| send(pid, Signal::KILL))
    }

    /// Ends the daemons' connections, too, in the middle: they do not get them back before the end.
    fn fill_connections(&mut self, seconds: f64) -> io::Result<()> {
        for number in 0..2 * CONNECTIONS_MAX {
            let mut other = self.server.psql(PLAIN, QUEUE, &format!("SELECT pg_sleep({seconds})"));
            self.held.0.push(other.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
            if number == CONNECTIONS_MAX {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE application_name LIKE 'shiftboss %'";
                self.server.query("postgres", sql)?;
            }
        }
        Ok(())
    }
}

impl Hub for Postgres {
    fn recovery_max(&self) -> Duration {
        RECOVERY_MAX
    }

    /// Without a disk of its own it is not filled.
    fn faults(&self, random: &mut Random) -> Vec<OfServer> {
        use OfServer as It;
        let mut all = vec![
            It::Frozen,
            It::Restarted(Stop::Fast),
            It::Restarted(Stop::Immediate),
            It::Restarted(Stop::Kill),
            It::BackendKilled,
            It::BackendsTerminated,
            It::Full,
            It::Locked,
        ];
        if self.small_disk.is_some() {
            all.push(It::DiskFull);
        }
        random.shuffle(&mut all);
        all
    }

    fn begin(&mut self, fault: OfServer, time: Duration) -> io::Result<()> {
        let seconds = time.as_secs_f64();
        match fault {
            OfServer::Frozen => self.server.freeze(),
            OfServer::Restarted(how) => self.server.stop(how),
            OfServer::BackendKilled => self.kill_backend(),
            OfServer::BackendsTerminated => self.server.end_connections(PLAIN),
            OfServer::Full => self.fill_connections(seconds),
            OfServer::Locked => {
                let lock = format!("BEGIN; LOCK TABLE shiftboss.keys; SELECT pg_sleep({seconds})");
                self.held.0.push(self.server.psql(PLAIN, QUEUE, &lock).spawn()?);
                Ok(())
            }
            OfServer::DiskFull => fill(&self.filler()),
            OfServer::BrokerKilled | OfServer::Alarm => Ok(()),
        }
    }

    fn end(&mut self, fault: OfServer) -> io::Result<()> {
        self.held = Children::default();
        match fault {
            OfServer::Frozen => self.server.thaw(),
            OfServer::Restarted(_) => self.server.run(),
            OfServer::DiskFull => fs::remove_file(self.filler()),
            _ => Ok(()),
        }
    }

    fn left(&self) -> io::Result<Vec<String>> {
        unsound(&SOUND, |sql| self.server.query(QUEUE, sql))
    }

    fn logged(&self) -> io::Result<Vec<(String, Option<i64>)>> {
        let sql = "SELECT convert_from(key, 'UTF8'), exit_code FROM shiftboss.keys";
        let logged = self.server.query(QUEUE, sql)?;
        let lines = logged.lines().filter_map(|line| line.split_once('|'));
        Ok(lines.map(|(key, code)| (key.to_owned(), code.parse().ok())).collect())
    }
}

/// A disk for the queue alone, so that it can be filled: the server's log of writes is elsewhere. It goes with the mount
/// namespace of this run.
fn mount(server: &PostgresServer) -> io::Result<PathBuf> {
    let disk = server.home().join("disk");
    fs::create_dir(&disk)?;
    let mut mount = Command::new("mount");
    if !mount.args(["-t", "tmpfs", "-o", SMALL_DISK, "none"]).arg(&disk).status()?.success() {
        return Err(io::Error::other("no disk can be mounted: run it as root, by `unshare -m`"));
    }
    Ok(disk)
}
