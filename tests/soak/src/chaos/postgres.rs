//! Four daemons of one queue on a PostgreSQL server, and what is done to that server.
//!
//! `make soak-postgres` has one; the daemons of [`broker`](super::broker) may have their queue on such a server, too.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use shiftboss_testbed::processes::{children, send};
use shiftboss_testbed::proxy::Proxy;
use shiftboss_testbed::server::{PostgresServer, Stop};

use super::daemons::Daemon;
use super::faults::{Held, OfServer};
use super::site::{Hub, Site, unsound};
use super::workers::CLASSIC_LEASE;
use crate::random::Random;

/// What the daemons are to the server: no administrator.
const ROLE: &str = "queue";
const DATABASE: &str = "queue";
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
}

/// # Errors
/// When there is no server to be had, or a daemon does not start.
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
        Daemon::new(name, program, home.path(), (proxy, arguments), clock)
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
    /// # Errors
    /// When there is no server to be had.
    pub fn start(fills_disk: bool) -> io::Result<Self> {
        let connections = format!("max_connections={CONNECTIONS_MAX}");
        let server = PostgresServer::start(&[&connections, "fsync=on", "log_checkpoints=off"])?;
        server.query("postgres", &format!("CREATE ROLE {ROLE} LOGIN"))?;
        let small_disk = fills_disk.then(|| mount(&server)).transpose()?;
        let place = small_disk.as_ref().map_or("", |_| "TABLESPACE small");
        let make = format!("CREATE DATABASE {DATABASE} OWNER {ROLE} TEMPLATE template0 {place}");
        server.query("postgres", &make)?;
        Ok(Self { server, small_disk })
    }

    /// Of the database.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url(ROLE, DATABASE)
    }

    /// What fills the small disk.
    fn filler(&self) -> PathBuf {
        self.small_disk.clone().unwrap_or_default().join("filler")
    }

    fn kill_backend(&self) -> io::Result<()> {
        let backends = children(self.server.pid()?)?;
        let client = backends.iter().find(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(ROLE)
        });
        client.map_or(Ok(()), |pid| send(*pid, Signal::KILL))
    }

    fn terminate_backends(&self) -> io::Result<()> {
        let sql = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '{ROLE}'"
        );
        self.server.query("postgres", &sql).map(drop)
    }

    /// Ends the daemons' connections, too, in the middle: they do not get them back before the end.
    fn fill_connections(&self, seconds: f64) -> io::Result<Held> {
        let mut held = Held::default();
        let sleep = format!("SELECT pg_sleep({seconds})");
        for part in 0..2 {
            for _ in 0..CONNECTIONS_MAX {
                let mut other = self.server.psql(ROLE, DATABASE, &sleep);
                other.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
                held.0.push(other.spawn()?);
            }
            if part == 0 {
                let sql = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                    WHERE application_name LIKE 'shiftboss %'";
                self.server.query("postgres", sql)?;
            }
        }
        Ok(held)
    }

    fn fill_disk(&self) -> io::Result<()> {
        let mut file = fs::File::create(self.filler())?;
        let block = vec![0; 1 << 16];
        loop {
            match file.write_all(&block) {
                Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                written => written?,
            }
        }
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

    fn begin(&mut self, fault: OfServer, time: Duration) -> io::Result<Held> {
        let seconds = time.as_secs_f64();
        match fault {
            OfServer::Frozen => self.server.freeze()?,
            OfServer::Restarted(how) => self.server.stop(how)?,
            OfServer::BackendKilled => self.kill_backend()?,
            OfServer::BackendsTerminated => self.terminate_backends()?,
            OfServer::Full => return self.fill_connections(seconds),
            OfServer::Locked => {
                let lock = format!("BEGIN; LOCK TABLE shiftboss.keys; SELECT pg_sleep({seconds})");
                return Ok(Held(vec![self.server.psql(ROLE, DATABASE, &lock).spawn()?]));
            }
            OfServer::DiskFull => self.fill_disk()?,
            OfServer::BrokerKilled | OfServer::Alarm => {}
        }
        Ok(Held::default())
    }

    fn end(&mut self, fault: OfServer) -> io::Result<()> {
        match fault {
            OfServer::Frozen => self.server.thaw(),
            OfServer::Restarted(_) => self.server.run(),
            OfServer::DiskFull => fs::remove_file(self.filler()),
            _ => Ok(()),
        }
    }

    fn left(&self) -> io::Result<Vec<String>> {
        unsound(&SOUND, |sql| self.server.query(DATABASE, sql))
    }

    fn logged(&self) -> io::Result<Vec<(String, Option<i64>)>> {
        let sql = "SELECT convert_from(key, 'UTF8'), exit_code FROM shiftboss.keys";
        let logged = self.server.query(DATABASE, sql)?;
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
    let tables = disk.join("tables");
    fs::create_dir(&tables)?;
    let owner = fs::metadata(server.home())?;
    chown(&tables, Some(owner.uid()), Some(owner.gid()))?;
    let make = format!("CREATE TABLESPACE small LOCATION '{}'", tables.display());
    server.query("postgres", &make)?;
    // It may be used by whoever owns a database there.
    server.query("postgres", &format!("GRANT CREATE ON TABLESPACE small TO {ROLE}"))?;
    Ok(disk)
}
