//! What is done to the daemons, to what is between them and their server, and to the server; and how the former is undone.
//!
//! Called by the [`rounds`](crate::rounds). What is done to the server its [`Hub`](crate::site::Hub) does. Everything heals at its
//! end, and no daemon needs help then.

use std::io;

use rustix::process::Signal;
use shiftboss_testbed::server::Stop;

use crate::random::Random;
use crate::site::Daemon;

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

impl OfDaemon {
    pub fn begin(self, daemon: &mut Daemon) -> io::Result<()> {
        match (self, &daemon.proxy) {
            (OfDaemon::Killed, _) => return daemon.end(Signal::KILL, &[]),
            // It cannot say goodbye to a server that does not answer.
            (OfDaemon::Stopped, _) => return daemon.end(Signal::TERM, &[0, 69, 74]),
            (OfDaemon::Frozen, _) => return daemon.signal(Signal::STOP),
            (OfDaemon::Stalled, Some(proxy)) => proxy.hold(),
            (OfDaemon::AnswersStalled, Some(proxy)) => proxy.hold_answers(),
            (OfDaemon::CutAfter(bytes), Some(proxy)) => proxy.cut_after(bytes),
            (OfDaemon::Refused, Some(proxy)) => proxy.refuse(),
            (_, None) => {}
        }
        Ok(())
    }

    pub fn end(self, daemon: &mut Daemon) -> io::Result<()> {
        match (self, &daemon.proxy) {
            (OfDaemon::Killed | OfDaemon::Stopped, _) => return daemon.run(),
            (OfDaemon::Frozen, _) => return daemon.signal(Signal::CONT),
            (_, Some(proxy)) => proxy.release(),
            (_, None) => {}
        }
        Ok(())
    }
}
