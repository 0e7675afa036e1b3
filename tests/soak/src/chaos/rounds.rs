//! The rounds of a chaos run: in each, one fault of the server and some of the daemons, which overlap; then all heals, and all
//! daemons must hand out jobs again by themselves.
//!
//! Which faults come when and how long they last is determined by the seed. Each comes once before one comes again.

use std::io;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::World;
use super::faults::{Held, OfDaemon, OfServer, of_daemons};
use super::site::Site;
use crate::random::Random;

/// A round's faults begin within this time.
const STARTS_MS: u64 = 1_500;
/// Most faults are short; a quarter is long enough for a daemon to be taken for dead, and for leases to end.
const SHORT_MS: (u64, u64) = (300, 3_000);
const LONG_MS: (u64, u64) = (5_500, 11_000);
/// An administrator's lock, in a whole run.
const MINUTE_MS: (u64, u64) = (60_000, 61_000);
const GLANCE: Duration = Duration::from_millis(20);

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
}

/// One fault of a round.
struct Planned {
    fault: Fault,
    begin: Duration,
    time: Duration,
    held: Option<Held>,
    is_over: bool,
}

/// The faults that are to come.
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
    #[must_use]
    pub fn new(seed: u64, is_whole: bool) -> Self {
        Self {
            random: Random::new(seed),
            of_daemons: Vec::new(),
            of_server: Vec::new(),
            is_whole,
            recovery: Duration::ZERO,
            rounds: 0,
            faults: 0,
        }
    }

    fn plan(&mut self, fault: Fault) -> Planned {
        let is_long = self.random.below(4) == 0 && fault.lasts();
        let (least, most) = if is_long { LONG_MS } else { SHORT_MS };
        let is_a_minute =
            self.is_whole && is_long && matches!(fault, Fault::OfServer(OfServer::Locked));
        let (least, most) = if is_a_minute { MINUTE_MS } else { (least, most) };
        let time = Duration::from_millis(least + self.random.below(most - least));
        let begin = Duration::from_millis(self.random.below(STARTS_MS));
        Planned { fault, begin, time, held: None, is_over: false }
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
    pub fn print(&self, site: &Site, world: &World) {
        let limit = site.hub.recovery_max();
        let served: Vec<_> =
            world.served.iter().map(|served| served.load(Ordering::Relaxed)).collect();
        let (ledger, claims) = (world.ledger(), world.claims());
        println!("faults          {} in {} rounds", self.faults, self.rounds);
        println!("recovery        at most {:?} (limit {limit:?})", self.recovery);
        println!("jobs            {} of {} runs, by daemon {served:?}", ledger.jobs, ledger.runs());
        println!("results         {} acknowledged, {} stale", claims.acknowledged, claims.stale);
    }

    /// Plays one round.
    ///
    /// # Errors
    /// When a fault cannot be done or undone.
    pub fn play(&mut self, site: &mut Site, world: &World) -> io::Result<()> {
        let mut round = self.deal(site);
        self.rounds += 1;
        self.faults += round.len();
        let began = Instant::now();
        while round.iter().any(|planned| !planned.is_over) {
            for planned in &mut round {
                planned.step(site, world, began.elapsed())?;
            }
            watch(site, world);
        }
        self.await_recovery(site, world);
        Ok(())
    }

    /// Waits until each daemon has handed out a job.
    fn await_recovery(&mut self, site: &mut Site, world: &World) {
        let served = || world.served.iter().map(|served| served.load(Ordering::Relaxed));
        let (before, since) = (served().collect::<Vec<_>>(), Instant::now());
        let limit = site.hub.recovery_max();
        while served().zip(&before).any(|(now, before)| now == *before) {
            if since.elapsed() > limit {
                let idle = served().zip(&before).map(|(now, before)| now - before);
                let idle = idle.collect::<Vec<_>>();
                let logs = site
                    .daemons
                    .iter()
                    .map(|daemon| format!("{}:\n{}\n", daemon.name, daemon.log_end()));
                let logs = logs.collect::<String>();
                world.report.fault(&format!(
                    "{limit:?} after all faults the daemons have handed out {idle:?} jobs\n{logs}"
                ));
                return;
            }
            watch(site, world);
        }
        self.recovery = self.recovery.max(since.elapsed());
        world.event(&format!("all work again after {:?}", since.elapsed()));
    }
}

impl Planned {
    /// Begins, or ends, if it is time.
    fn step(&mut self, site: &mut Site, world: &World, now: Duration) -> io::Result<()> {
        if self.is_over || now < self.begin {
            return Ok(());
        }
        let is_begun = self.held.is_some();
        let name = match &self.fault {
            Fault::OfDaemon(at, fault) => format!("{}: {fault:?}", site.daemons[*at].name),
            Fault::OfServer(fault) => format!("server: {fault:?}"),
        };
        if !is_begun {
            world.event(&format!("--- {name} for {:?}", self.time));
            self.held = Some(match self.fault {
                Fault::OfDaemon(at, fault) => {
                    fault.begin(&mut site.daemons[at])?;
                    Held::default()
                }
                Fault::OfServer(fault) => site.hub.begin(fault, self.time)?,
            });
        } else if now > self.begin + self.time {
            self.is_over = true;
            match self.fault {
                Fault::OfDaemon(at, fault) => fault.end(&mut site.daemons[at])?,
                Fault::OfServer(fault) => {
                    self.held = None;
                    site.hub.end(fault)?;
                }
            }
            world.event(&format!("--- {name} is over"));
        }
        Ok(())
    }
}

/// Pauses, and looks whether a daemon ended that nobody ended.
pub fn watch(site: &mut Site, world: &World) {
    thread::sleep(GLANCE);
    for daemon in &mut site.daemons {
        daemon.watch().unwrap_or_else(|error| world.report.fault(&error.to_string()));
    }
}
