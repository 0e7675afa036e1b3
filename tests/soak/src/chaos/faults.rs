//! What is done to the daemons, to what is between them and their server, and to the server; and how the former is undone.
//!
//! Called by the [`rounds`](super::rounds). What is done to the server its [`Hub`](super::site::Hub) does. Everything heals at its
//! end, and no daemon needs help then.

use std::io;
use std::process::Child;

use rustix::process::Signal;
use shiftboss_testbed::server::Stop;

use super::daemons::Daemon;
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

/// Done to the server, or to the broker.
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
    /// The broker is killed, and started again.
    BrokerKilled,
    /// The broker is short of memory, and takes nothing.
    Alarm,
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

/// What must be undone at a fault's end, beside what its kind says.
#[derive(Default)]
pub struct Held(pub Vec<Child>);

impl Drop for Held {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl OfDaemon {
    /// # Errors
    /// When it cannot be done.
    pub fn begin(self, daemon: &mut Daemon) -> io::Result<()> {
        match self {
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
    pub fn end(self, daemon: &mut Daemon) -> io::Result<()> {
        match self {
            OfDaemon::Killed | OfDaemon::Stopped => daemon.run()?,
            OfDaemon::Frozen => daemon.signal(Signal::CONT)?,
            _ => daemon.proxy.release(),
        }
        Ok(())
    }
}
