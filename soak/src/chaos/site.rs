//! The server, its database and the daemons of a chaos run.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use shiftboss_testbed::server::PostgresServer;
use tempfile::TempDir;

use super::daemons::Daemon;

/// What the daemons are to the server: no administrator.
pub const ROLE: &str = "queue";
pub const DATABASE: &str = "queue";
/// Few, so that they can be used up.
pub const CONNECTIONS_MAX: usize = 30;
pub const DAEMONS: usize = 4;
/// How far the daemons' clocks are off.
const CLOCKS: [Option<&str>; DAEMONS] = [None, Some("+1d"), Some("-1d"), None];
/// Enough for the queue of a run.
const SMALL_DISK: &str = "size=600m";

pub struct Site {
    // In the order in which they go.
    pub daemons: Vec<Daemon>,
    pub server: PostgresServer,
    small_disk: Option<PathBuf>,
    _home: TempDir,
}

impl Site {
    /// # Errors
    /// When there is no server to be had, or a daemon does not start.
    pub fn new(program: &Path, fills_disk: bool) -> io::Result<Self> {
        let home = tempfile::tempdir()?;
        let connections = format!("max_connections={CONNECTIONS_MAX}");
        let server = PostgresServer::start(&[&connections, "fsync=on", "log_checkpoints=off"])?;
        server.query("postgres", &format!("CREATE ROLE {ROLE} LOGIN"))?;
        let small_disk = fills_disk.then(|| mount(&server)).transpose()?;
        let place = small_disk.as_ref().map_or("", |_| "TABLESPACE small");
        let make = format!("CREATE DATABASE {DATABASE} OWNER {ROLE} TEMPLATE template0 {place}");
        server.query("postgres", &make)?;
        let url = server.url(ROLE, DATABASE);
        let can_fake = Command::new("faketime").arg("--version").output().is_ok();
        if !can_fake {
            println!("all clocks are right: faketime is not installed");
        }
        let start = |(number, clock): (usize, &Option<&'static str>)| {
            let clock = clock.filter(|_| can_fake);
            Daemon::new(format!("daemon{number}"), program, home.path(), &url, clock)
        };
        let daemons = CLOCKS.iter().enumerate().map(start).collect::<Result<_, _>>()?;
        Ok(Self { daemons, server, small_disk, _home: home })
    }

    /// What fills the small disk.
    #[must_use]
    pub fn filler(&self) -> PathBuf {
        self.small_disk.clone().unwrap_or_default().join("filler")
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
