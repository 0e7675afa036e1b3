//! The rounds of faults: in each, one fault of the server and some of the daemons, which overlap; then all heals, and all
//! daemons must hand out jobs again by themselves.
//!
//! Which faults come when and how long they last is determined by the seed. Each comes once before one comes again.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::Soak;
use crate::faults::{OfDaemon, OfServer, of_daemons};
use crate::random::Random;
use crate::site::{Daemon, Site};

/// A round's faults begin within this time.
const STARTS_MS: u64 = 1_500;
/// Most faults are short; a quarter is long enough for a daemon to be taken for dead, and for leases to end.
const SHORT_MS: (u64, u64) = (300, 3_000);
const LONG_MS: (u64, u64) = (5_500, 11_000);
/// An administrator's lock, in a whole run.
const MINUTE_MS: (u64, u64) = (60_000, 61_000);

enum Fault {
    OfDaemon(usize, OfDaemon),
    OfServer(OfServer),
}

impl Fault {
    /// Some are over when they are done.
    fn lasts(&self) -> bool {
        use OfServer::{BackendKilled, BackendsTerminated, BrokerKilled};
        !matches!(
            self,
            Self::OfServer(BackendKilled | BackendsTerminated | BrokerKilled)
                | Self::OfDaemon(_, OfDaemon::CutAfter(_))
        )
    }

    fn begin(&self, site: &mut Site, time: Duration) -> io::Result<()> {
        match self {
            Self::OfDaemon(at, fault) => fault.begin(&mut site.daemons[*at]),
            Self::OfServer(fault) => site.hub.begin(*fault, time),
        }
    }

    fn end(&self, site: &mut Site) -> io::Result<()> {
        match self {
            Self::OfDaemon(at, fault) => fault.end(&mut site.daemons[*at]),
            Self::OfServer(fault) => site.hub.end(*fault),
        }
    }
}

/// One fault of a round.
struct Planned {
    fault: Fault,
    begin: Duration,
    time: Duration,
    is_begun: bool,
    is_over: bool,
}

/// The faults that are to come.
#[derive(Default)]
pub struct Deck {
    random: Random,
    of_daemons: Vec<OfDaemon>,
    of_server: Vec<OfServer>,
    /// Long enough for faults of a minute.
    is_whole: bool,
    /// The longest that daemons took to hand out jobs again.
    recovery: Duration,
    rounds: usize,
    faults: usize,
}

impl Deck {
    pub fn new(seed: u64, is_whole: bool) -> Self {
        Self { random: Random::new(seed), is_whole, ..Self::default() }
    }

    fn plan(&mut self, fault: Fault) -> Planned {
        let is_long = self.random.below(4) == 0 && fault.lasts();
        let (least, most) = if is_long { LONG_MS } else { SHORT_MS };
        let is_a_minute =
            self.is_whole && is_long && matches!(fault, Fault::OfServer(OfServer::Locked));
        let (least, most) = if is_a_minute { MINUTE_MS } else { (least, most) };
        let time = Duration::from_millis(least + self.random.below(most - least));
        let begin = Duration::from_millis(self.random.below(STARTS_MS));
        Planned { fault, begin, time, is_begun: false, is_over: false }
    }

    /// The faults of the next round: daemons have one each.
    fn deal(&mut self, site: &Site) -> Vec<Planned> {
        if self.of_server.is_empty() {
            self.of_server = site.hub.faults(&mut self.random);
        }
        let mut round = Vec::new();
        let server = self.of_server.pop();
        round.extend(server.map(|fault| self.plan(Fault::OfServer(fault))));
        let first = self.random.below(site.daemons.len() as u64) as usize;
        for number in 0..self.random.below(3) as usize {
            if self.of_daemons.is_empty() {
                self.of_daemons = of_daemons(&mut self.random);
            }
            let fault = self.of_daemons.pop();
            let at = (first + number) % site.daemons.len();
            round.extend(fault.map(|fault| self.plan(Fault::OfDaemon(at, fault))));
        }
        round
    }

    /// Prints the summary.
    pub fn print(&self, site: &Site, soak: &Soak) {
        let limit = site.hub.recovery_max();
        println!("faults          {} in {} rounds", self.faults, self.rounds);
        println!("recovery        at most {:?} (limit {limit:?})", self.recovery);
        println!("by daemon       {:?}", served(soak));
    }

    /// Plays one round.
    pub fn play(&mut self, site: &mut Site, soak: &Soak) -> io::Result<()> {
        let mut round = self.deal(site);
        self.rounds += 1;
        self.faults += round.len();
        let began = Instant::now();
        while round.iter().any(|planned| !planned.is_over) {
            for planned in &mut round {
                planned.step(site, soak, began.elapsed())?;
            }
            site.watch(soak);
        }
        self.await_recovery(site, soak);
        Ok(())
    }

    /// Waits until each daemon has handed out a job.
    fn await_recovery(&mut self, site: &mut Site, soak: &Soak) {
        let (before, since, limit) = (served(soak), Instant::now(), site.hub.recovery_max());
        while served(soak).iter().zip(&before).any(|(now, before)| now == before) {
            if since.elapsed() > limit {
                let log = |daemon: &Daemon| format!("{}:\n{}\n", daemon.name, daemon.log_end());
                let logs: String = site.daemons.iter().map(log).collect();
                let now = served(soak);
                soak.fault(&format!(
                    "{limit:?} after all faults: {before:?} jobs, {now:?}\n{logs}"
                ));
                return;
            }
            site.watch(soak);
        }
        self.recovery = self.recovery.max(since.elapsed());
        soak.report.event(&format!("all work again after {:?}", since.elapsed()));
    }
}

/// Jobs that each daemon handed out.
fn served(soak: &Soak) -> Vec<u64> {
    soak.served.iter().map(|served| served.load(Ordering::Relaxed)).collect()
}

impl Planned {
    /// Begins, or ends, if it is time.
    fn step(&mut self, site: &mut Site, soak: &Soak, now: Duration) -> io::Result<()> {
        if self.is_over || now < self.begin {
            return Ok(());
        }
        let name = match &self.fault {
            Fault::OfDaemon(at, fault) => format!("{}: {fault:?}", site.daemons[*at].name),
            Fault::OfServer(fault) => format!("server: {fault:?}"),
        };
        if !self.is_begun {
            soak.report.event(&format!("--- {name} for {:?}", self.time));
            self.is_begun = true;
            self.fault.begin(site, self.time)?;
        } else if now > self.begin + self.time {
            self.is_over = true;
            self.fault.end(site)?;
            soak.report.event(&format!("--- {name} is over"));
        }
        Ok(())
    }
}
