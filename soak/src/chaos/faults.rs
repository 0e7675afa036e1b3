//! What is done to the daemons, to what is between them and their server, and to the server; and how it is undone.
//!
//! Called by the [`rounds`](super::rounds). Everything heals at its end, and no daemon needs help then.

use std::fs;
use std::io::{self, Write};
use std::process::Child;
use std::time::Duration;

use rustix::process::Signal;
use shiftboss_testbed::processes::{children, send};
use shiftboss_testbed::server::Stop;

use super::site::{DATABASE, ROLE, Site};
use crate::random::Random;

/// Done to one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfDaemon {
    Killed,
    Frozen,
    Stopped,
    /// Nothing passes between it and the server.
    Stalled,
    /// The server hears it, but not the other way round.
    AnswersStalled,
    /// After so many bytes its connections are cut, in the middle of whatever is said.
    CutAfter(usize),
    Refused,
}

/// Done to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfServer {
    Frozen,
    Restarted(Stop),
    /// One of its processes is killed: it recovers by itself.
    BackendKilled,
    BackendsTerminated,
    /// Others have all connections that it allows.
    Full,
    /// An administrator locks the queue.
    Locked,
    DiskFull,
}

/// All of them, in the order in which the numbers are drawn.
#[must_use]
pub fn of_daemons(random: &mut Random) -> Vec<OfDaemon> {
    use OfDaemon as It;
    let cut = It::CutAfter(random.below(20_000) as usize);
    let mut all = vec![
        It::Killed,
        It::Frozen,
        It::Stopped,
        It::Stalled,
        It::AnswersStalled,
        cut,
        It::Refused,
    ];
    random.shuffle(&mut all);
    all
}

/// All of them, shuffled; without a disk of its own it is not filled.
#[must_use]
pub fn of_server(random: &mut Random, fills_disk: bool) -> Vec<OfServer> {
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
    if fills_disk {
        all.push(It::DiskFull);
    }
    random.shuffle(&mut all);
    all
}

/// What must be undone at a fault's end, beside what its kind says.
#[derive(Default)]
pub struct Held(Vec<Child>);

impl Drop for Held {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Site {
    /// # Errors
    /// When it cannot be done.
    pub fn begin_at_daemon(&mut self, at: usize, fault: OfDaemon) -> io::Result<()> {
        let daemon = &mut self.daemons[at];
        match fault {
            OfDaemon::Killed => daemon.end(Signal::KILL, &[])?,
            // It cannot say goodbye to a server that does not answer.
            OfDaemon::Stopped => daemon.end(Signal::TERM, &[0, 69, 74])?,
            OfDaemon::Frozen => daemon.signal(Signal::STOP)?,
            OfDaemon::Stalled => daemon.proxy.hold(),
            OfDaemon::AnswersStalled => daemon.proxy.hold_answers(),
            OfDaemon::CutAfter(bytes) => daemon.proxy.cut_after(bytes),
            OfDaemon::Refused => daemon.proxy.refuse(),
        }
        Ok(())
    }

    /// # Errors
    /// When it cannot be undone.
    pub fn end_at_daemon(&mut self, at: usize, fault: OfDaemon) -> io::Result<()> {
        let daemon = &mut self.daemons[at];
        match fault {
            OfDaemon::Killed | OfDaemon::Stopped => daemon.run()?,
            OfDaemon::Frozen => daemon.signal(Signal::CONT)?,
            _ => daemon.proxy.release(),
        }
        Ok(())
    }

    /// # Errors
    /// When it cannot be done.
    pub fn begin_at_server(&mut self, fault: OfServer, time: Duration) -> io::Result<Held> {
        let seconds = time.as_secs_f64();
        match fault {
            OfServer::Frozen => self.server.freeze()?,
            OfServer::Restarted(how) => self.server.stop(how)?,
            OfServer::BackendKilled => self.kill_backend()?,
            OfServer::BackendsTerminated => self.terminate_backends()?,
            OfServer::Full => return self.fill_connections(seconds),
            OfServer::Locked => {
                let lock = format!("BEGIN; LOCK TABLE shiftboss.queue; SELECT pg_sleep({seconds})");
                return Ok(Held(vec![self.server.psql(ROLE, DATABASE, &lock).spawn()?]));
            }
            OfServer::DiskFull => self.fill_disk()?,
        }
        Ok(Held::default())
    }

    /// # Errors
    /// When it cannot be undone.
    pub fn end_at_server(&mut self, fault: OfServer, held: Held) -> io::Result<()> {
        drop(held);
        match fault {
            OfServer::Frozen => self.server.thaw(),
            OfServer::Restarted(_) => self.server.run(),
            OfServer::DiskFull => fs::remove_file(self.filler()),
            _ => Ok(()),
        }
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
            for _ in 0..super::site::CONNECTIONS_MAX {
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
