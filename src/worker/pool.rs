//! What the slots of a worker share: how many jobs are out and may be taken, how they ended, and whether it is time to
//! stop. A plain value: the slots ([`super::source`]) report to it what happened and ask it what to do; it does not
//! wait, and does not know the socket.

use std::time::{Duration, Instant};

use shiftboss_protocol::model::Idle;

use super::caution::{Caution, Failures};
use crate::runner::Stop;

/// How long a request waits at the daemon for a job.
pub const LONG_WAIT: Duration = Duration::from_secs(30);
/// How long the daemon may be silent once the worker is ending.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// The same, after a second signal.
pub const LAST_PATIENCE: Duration = Duration::from_secs(5);
/// After this many failed starts in a row, a worker with `--once` leaves.
const STARTS_MAX: u32 = 3;

/// Whether a slot may ask for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// It may, and the daemon waits up to this long for one; zero: it only checks whether there is one.
    Ask(Duration),
    /// Not before this time, if one is set, or before something changes.
    Later(Option<Instant>),
    Leave,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Taken, and their end is not known to the daemon yet.
    pub out: u64,
    /// Ends that the daemon knows.
    pub done: u64,
    /// Those of them with another exit code than 0.
    pub failed: u64,
    pub given_back: u64,
    /// Given back because they were cancelled: nobody does them again.
    pub cancelled: u64,
    /// Another worker has them by now, or none: their ends will never be known.
    pub lost: u64,
}

impl Counts {
    /// Jobs that were taken, without those that were given back for another time.
    pub fn taken(&self) -> u64 {
        self.out + self.done + self.cancelled + self.lost
    }
}

/// What the end of a job changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// From now on one job at a time is tried.
    Suspicious,
    /// A job succeeded: slots work at the same time again.
    Recovered,
}

/// A condition that is logged when it begins and when it is over.
#[derive(Debug, Clone, Copy)]
pub enum State {
    /// The daemon does not answer.
    Silent,
    /// It does, and refuses: until a request is answered.
    Busy,
    /// The daemon is a classic one.
    Classic,
    /// The queue is paused.
    Paused,
    /// It waits for what comes by itself, and has for a while.
    Waiting,
}

/// When a worker leaves by itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Leaves {
    /// When there is nothing to do.
    pub once: bool,
    /// Then only when nothing is to be tried again, either.
    pub until_done: bool,
    /// After so many jobs.
    pub jobs_max: Option<u64>,
    /// After so many failures in a row.
    pub failures_max: Option<u64>,
}

#[derive(Debug, Clone, Default)]
pub struct Pool {
    leaves: Leaves,
    /// Slots that are asking for a job. The daemon may have handed one out that is not counted yet.
    pub asking: u64,
    pub counts: Counts,
    pub stop: Stop,
    stopped_at: Option<Instant>,
    /// After commands that could not be started.
    starts: Caution,
    /// After jobs that all failed at once: the cause is probably not the jobs, but something they all need.
    ends: Caution,
    failures: Failures,
    /// Why no job can be started: the worker leaves for it.
    pub no_start: Option<String>,
    /// Whether each [`State`] was logged.
    logged: [bool; 5],
    /// A slot has got an answer about whether there is a job.
    knows: bool,
    /// What was left when there was no job: at the end, what others still have to do.
    pub left: Idle,
}

impl Pool {
    /// A pool that has done nothing.
    pub fn new(leaves: Leaves) -> Self {
        Self { leaves, ..Self::default() }
    }

    /// Whether a slot may ask. `reports`: it reports a job of its own at the same time.
    pub fn permit(&self, reports: bool, now: Instant) -> Permit {
        let is_taken = |taken: u64| self.leaves.jobs_max.is_some_and(|most| taken >= most);
        if self.stop > Stop::No || is_taken(self.counts.taken()) {
            return Permit::Leave;
        }
        // After a failed start one slot at a time tries whether the next one works; after failures one job at a time,
        // whose end is known before the next one is asked for.
        let is_one_out = self.counts.out > 0;
        let must_queue = self.asking > 0 && (self.starts.is_on() || self.ends.is_on())
            || self.ends.is_on() && is_one_out;
        if must_queue || is_taken(self.counts.taken() + self.asking) {
            return Permit::Later(None);
        }
        match self.starts.until(now).max(self.ends.until(now)) {
            Some(until) => Permit::Later(Some(until)),
            // A request of another slot may get the last job: a slot that then finds none must not leave.
            None if self.leaves.once
                && self.counts.out == 0
                && self.asking > 0
                && !self.is(State::Silent) =>
            {
                Permit::Later(None)
            }
            None if self.leaves.once && !self.waits() && self.counts.out == u64::from(reports) => {
                Permit::Ask(Duration::ZERO)
            }
            // A waiting request is not answered that the queue is paused, or the daemon serves again, before its wait
            // is over.
            None if !self.knows || self.is(State::Busy) => Permit::Ask(Duration::ZERO),
            None => Permit::Ask(LONG_WAIT),
        }
    }

    /// Whether a request that waits this long for a job should stop waiting.
    pub fn is_outdated(&self, wait: Duration) -> bool {
        let is_over = self.leaves.once && !self.waits() && self.counts.out == 0 && !wait.is_zero();
        self.stop > Stop::No || is_over
    }

    /// Whether a slot that got the answer at once that there is no job has nothing more to do.
    pub fn is_over(&self, wait: Duration) -> bool {
        let is_idle = self.counts.out == 0 && self.asking == 0;
        self.leaves.once && !self.waits() && is_idle && wait.is_zero()
    }

    /// Whether this worker waits for something that comes by itself: a task that is tried again, a group that opens.
    pub fn waits(&self) -> bool {
        self.leaves.until_done && (self.left.delayed > 0 || self.left.groups > 0)
    }

    /// A slot that was asking was answered, or gave up.
    pub fn asked(&mut self, is_answered: bool) {
        self.asking -= 1;
        self.knows |= is_answered;
    }

    /// A slot has a job, or none.
    pub fn took(&mut self, is_job: bool) {
        self.counts.out += u64::from(is_job);
        if is_job {
            // What is left must be asked for anew.
            self.left = Idle::default();
            self.is_news(State::Waiting, false);
        }
    }

    /// The daemon knows the end of a key's job, which took so long. Returns what is to be said of it.
    pub fn reported(&mut self, key: &[u8], code: u8, took: Duration, now: Instant) -> Option<News> {
        self.counts.out -= 1;
        self.counts.done += 1;
        if code == 0 {
            self.failures = Failures::default();
            return std::mem::take(&mut self.ends).is_on().then_some(News::Recovered);
        }
        self.counts.failed += 1;
        self.failures.add(key, took);
        match self.leaves.failures_max {
            Some(most) if self.failures.in_a_row() >= most => {
                self.stop = self.stop.max(Stop::Finish);
                None
            }
            None if self.ends.is_on() || self.failures.are_suspicious() => {
                let is_news = !self.ends.is_on();
                self.ends.again(now);
                is_news.then_some(News::Suspicious)
            }
            _ => None,
        }
    }

    /// Failures in a row, if they are as many as are borne.
    pub fn too_many_failures(&self) -> Option<u64> {
        self.leaves.failures_max.filter(|most| self.failures.in_a_row() >= *most)
    }

    /// Another worker has the job now, or none.
    pub fn lost(&mut self) {
        self.counts.out -= 1;
        self.counts.lost += 1;
    }

    /// A job was given back undone.
    pub fn gave_back(&mut self) {
        self.counts.out -= 1;
        self.counts.given_back += 1;
    }

    /// A job was cancelled, and its command has ended.
    pub fn was_cancelled(&mut self) {
        self.counts.out -= 1;
        self.counts.cancelled += 1;
    }

    /// A command was started: whatever was wrong is over.
    pub fn started(&mut self) {
        self.starts = Caution::default();
    }

    /// A command could not be started, and the next may not be either. Returns the pause. Slots that
    /// fail together count once.
    pub fn could_not_start(&mut self, now: Instant) -> Duration {
        self.starts.again(now)
    }

    /// Whether it leaves when there is nothing to do.
    pub fn is_once(&self) -> bool {
        self.leaves.once
    }

    /// No command can be started at present. With `--once` the worker does not wait for ever.
    pub fn could_start_none(&mut self, why: String) {
        if self.leaves.once && self.starts.times() >= STARTS_MAX {
            self.no_start = Some(why);
            self.stop = self.stop.max(Stop::Finish);
        }
    }

    pub fn stop(&mut self, stop: Stop, now: Instant) {
        self.stop = stop.max(self.stop);
        self.stopped_at = Some(now);
    }

    /// Until when to try for an answer, if there has been none since a time.
    pub fn patience(&self, silent_since: Instant) -> Option<Instant> {
        let patience = match self.stop {
            Stop::Kill => LAST_PATIENCE,
            Stop::No if !self.leaves.once => return None,
            Stop::No | Stop::Finish => PATIENCE,
        };
        let since = self.stopped_at.map_or(silent_since, |stopped| stopped.max(silent_since));
        since.checked_add(patience)
    }

    pub fn is(&self, state: State) -> bool {
        self.logged[state as usize]
    }

    /// Notes whether something is so. True: that is news.
    pub fn is_news(&mut self, state: State, is_so: bool) -> bool {
        std::mem::replace(&mut self.logged[state as usize], is_so) != is_so
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Permit = Permit::Ask(Duration::ZERO);
    const WAITING: Permit = Permit::Ask(LONG_WAIT);

    fn take(pool: &mut Pool) {
        pool.asking += 1;
        pool.asked(true);
        pool.took(true);
    }

    /// With `once` a slot asks whether there is anything only when no other job is out but its own.
    #[test]
    fn once_is_over_when_nothing_is_out() {
        let (mut pool, now) =
            (Pool::new(Leaves { once: true, ..Leaves::default() }), Instant::now());
        assert_eq!(pool.permit(false, now), AT_ONCE);
        assert!(pool.is_over(Duration::ZERO));
        pool.asking += 1;
        assert_eq!(pool.permit(false, now), Permit::Later(None));
        assert!(pool.is_news(State::Silent, true));
        assert_eq!(pool.permit(false, now), AT_ONCE, "nobody is answered soon");
        assert!(pool.is_news(State::Silent, false));
        assert!(!pool.is_over(Duration::ZERO), "another one may be given a job");
        pool.asked(true);
        take(&mut pool);
        assert_eq!((pool.permit(false, now), pool.permit(true, now)), (WAITING, AT_ONCE));
        assert!(!pool.is_over(Duration::ZERO) && !pool.is_outdated(LONG_WAIT));
        take(&mut pool);
        assert_eq!(pool.permit(true, now), WAITING);
        pool.reported(b"a", 0, Duration::ZERO, now);
        pool.lost();
        assert!(pool.is_outdated(LONG_WAIT) && !pool.is_outdated(Duration::ZERO));
        assert_eq!(pool.counts, Counts { done: 1, lost: 1, ..Counts::default() });
        assert!(!Pool::default().is_over(Duration::ZERO));
    }

    /// What is tried again is waited for, and then asked for anew.
    #[test]
    fn it_is_over_when_nothing_is_tried_again() {
        let leaves = Leaves { once: true, until_done: true, ..Leaves::default() };
        let (mut pool, now) = (Pool::new(leaves), Instant::now());
        pool.left = Idle { delayed: 1, ..Idle::default() };
        pool.asking += 1;
        pool.asked(true);
        assert!(!pool.is_over(Duration::ZERO) && !pool.is_outdated(LONG_WAIT));
        assert_eq!(pool.permit(false, now), WAITING);
        pool.took(true);
        assert_eq!(pool.permit(true, now), AT_ONCE, "it may have been the last");
        pool.reported(b"a", 0, Duration::ZERO, now);
        assert!(pool.is_over(Duration::ZERO) && pool.is_outdated(LONG_WAIT));
    }

    /// No more jobs are taken than allowed, even by slots that ask at the same time; after one is given back, another
    /// may be taken, and after one is cancelled none.
    #[test]
    fn no_more_are_taken_than_allowed() {
        let (mut pool, now) =
            (Pool::new(Leaves { jobs_max: Some(2), ..Leaves::default() }), Instant::now());
        take(&mut pool);
        assert_eq!(pool.permit(false, now), WAITING);
        pool.asking += 1;
        assert_eq!(pool.permit(false, now), Permit::Later(None));
        pool.asked(true);
        assert_eq!(pool.permit(false, now), WAITING);
        take(&mut pool);
        assert_eq!(pool.permit(true, now), Permit::Leave);
        pool.gave_back();
        assert_eq!(pool.permit(false, now), WAITING);
        take(&mut pool);
        pool.was_cancelled();
        assert_eq!(pool.permit(true, now), Permit::Leave);
        let counts = Counts { out: 1, given_back: 1, cancelled: 1, ..Counts::default() };
        assert_eq!(pool.counts, counts);
    }

    /// A command that cannot be started makes everybody wait, longer each time, until one can.
    #[test]
    fn failed_starts_hold_all() {
        let (mut pool, now) = (Pool::default(), Instant::now());
        assert_eq!(pool.permit(false, now), AT_ONCE, "the queue may be paused");
        pool.asking += 1;
        pool.asked(true);
        let mut at = now;
        let mut fail = || {
            let pause = pool.could_not_start(at);
            assert_eq!(pool.could_not_start(at), pause, "together they count once");
            at += pause;
            pause.as_secs()
        };
        assert_eq!([(); 8].map(|()| fail()), [1, 2, 4, 8, 16, 32, 60, 60]);
        let before = at - Duration::from_millis(1);
        assert_eq!(pool.permit(false, before), Permit::Later(Some(at)));
        assert_eq!(pool.permit(false, at), WAITING);
        pool.asking += 1;
        assert_eq!(pool.permit(false, at), Permit::Later(None), "one tries at a time");
        pool.asked(true);
        pool.started();
        assert_eq!(pool.permit(false, now), WAITING);
        assert_eq!(pool.could_not_start(now).as_secs(), 1);
    }

    /// When the last jobs of twenty keys failed at once, one at a time is tried, after a pause, until one succeeds.
    #[test]
    fn failures_at_once_are_suspicious() {
        let (mut pool, now) = (Pool::default(), Instant::now());
        let fail = |pool: &mut Pool, key: u8, took| {
            take(pool);
            pool.reported(&[key], 1, took, now)
        };
        for key in 0..19 {
            assert_eq!(fail(&mut pool, key, Duration::ZERO), None);
        }
        assert_eq!(fail(&mut pool, 0, Duration::ZERO), None, "of a key that failed before");
        assert_eq!(pool.permit(false, now), WAITING);
        take(&mut pool);
        assert_eq!(fail(&mut pool, 19, Duration::ZERO), Some(News::Suspicious));
        assert_eq!(pool.permit(false, now), Permit::Later(None), "another one is out");
        pool.gave_back();
        let until = now + Duration::from_secs(1);
        assert_eq!(pool.permit(false, now), Permit::Later(Some(until)));
        assert_eq!(pool.permit(false, until), WAITING);
        take(&mut pool);
        assert_eq!(pool.permit(true, until), Permit::Later(None), "its end is reported first");
        pool.gave_back();
        assert_eq!(fail(&mut pool, 20, Duration::from_secs(9)), None, "it is known");
        take(&mut pool);
        assert_eq!(pool.reported(b"a", 0, Duration::ZERO, now), Some(News::Recovered));
        assert_eq!(pool.permit(false, now), WAITING);
    }

    /// After so many failures in a row the worker leaves; one success, and they are counted anew.
    #[test]
    fn failures_in_a_row_end_it() {
        let (mut pool, now) =
            (Pool::new(Leaves { failures_max: Some(2), ..Leaves::default() }), Instant::now());
        for (code, in_a_row) in [(1, None), (0, None), (1, None), (7, Some(2))] {
            assert_eq!(pool.stop, Stop::No);
            take(&mut pool);
            pool.reported(b"a", code, Duration::ZERO, now);
            assert_eq!(pool.too_many_failures(), in_a_row);
        }
        assert_eq!(pool.stop, Stop::Finish);
    }

    /// A first signal lets jobs finish and a second one does not; patience ends with each.
    #[test]
    fn signals_stop_in_two_steps() {
        let (mut pool, now) = (Pool::default(), Instant::now());
        let later = now + Duration::from_secs(100);
        assert_eq!(pool.patience(now), None);
        assert_eq!(
            Pool::new(Leaves { once: true, ..Leaves::default() }).patience(now),
            Some(now + PATIENCE)
        );
        pool.stop(Stop::Finish, later);
        assert_eq!((pool.stop, pool.permit(true, later)), (Stop::Finish, Permit::Leave));
        assert!(pool.is_outdated(Duration::ZERO));
        assert_eq!(pool.patience(now), Some(later + PATIENCE));
        pool.stop(Stop::Kill, later);
        assert_eq!(pool.stop, Stop::Kill);
        assert_eq!(pool.patience(now), Some(later + LAST_PATIENCE));
    }

    /// News is logged once.
    #[test]
    fn news_is_logged_once() {
        let mut pool = Pool::default();
        let silent = [false, true, true, false, false];
        let news = silent.map(|silent| pool.is_news(State::Silent, silent));
        assert_eq!(news, [false, true, false, true, false]);
        assert!(pool.is_news(State::Classic, true) && !pool.is_news(State::Paused, false));
    }
}
