//! When a group is open: what its jobs, its limits, an operator and workers make of that.
//!
//! Pure functions of a group's state; the [engine](crate::engine) says which jobs start and end. Times are steady ones
//! (see [groups](crate::groups)); one that lies in the future [counts from now on](Group::notice), so that no delay is longer than
//! it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use shiftboss_protocol::model::UnixSeconds;

use crate::groups::{ASKED_MAX, Limits};
use crate::record::Millis;

/// Into how many parts the window of a rate is cut at most: starts of one part are counted as at the last one of them.
const PARTS: i64 = 64;

/// What is kept of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub name: Arc<str>,
    #[serde(skip)]
    pub in_flight: i64,
    /// Keys whose turn comes when it is open.
    #[serde(skip)]
    pub waiting: i64,
    /// Rows that are in it; the single tasks of a key are counted as one.
    #[serde(skip)]
    pub tasks: i64,
    /// When its last job started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Millis>,
    /// When one ended last, and how long that took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<(Millis, Millis)>,
    /// The starts that count for its rate, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub starts: Vec<(Millis, u32)>,
    /// A worker asked for a pause: since when, and how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<(Millis, Millis)>,
    /// A worker asked for another delay: how long it is, since when it holds, and for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<(Millis, Millis, Millis)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
}

/// An operator holds a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    pub since: UnixSeconds,
    /// Since when, and for how long; `None`: until it is ended.
    pub lasts: Option<(Millis, Millis)>,
    pub reason: String,
    pub by: Arc<str>,
}

impl Hold {
    pub fn is_over(&self, now: Millis) -> bool {
        self.lasts.is_some_and(|(since, lasts)| end_of(since, lasts, now) <= now)
    }
}

/// Whether a group's next job may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Opening {
    Open,
    /// At this time.
    At(Millis),
    /// When one of its jobs ends.
    Full,
    /// When an operator says so.
    Held,
    /// When an operator's hold ends, and nothing else closes it.
    HeldUntil(Millis),
}

impl Opening {
    /// When time alone may open it.
    pub fn due(self) -> Option<Millis> {
        if let Self::At(at) | Self::HeldUntil(at) = self { Some(at) } else { None }
    }
}

impl Group {
    pub fn new(name: Arc<str>) -> Self {
        Self { name, ..Self::default() }
    }

    /// What it remembers of the future, by a clock that was ahead, counts from now on.
    pub fn notice(&mut self, now: Millis) {
        let began = self.started.iter_mut().chain(self.ended.iter_mut().map(|it| &mut it.0));
        let asked = self.pause.iter_mut().map(|it| &mut it.0);
        let asked = asked.chain(self.delay.iter_mut().map(|it| &mut it.1));
        let holds = self.hold.iter_mut().filter_map(|it| Some(&mut it.lasts.as_mut()?.0));
        let starts = self.starts.iter_mut().map(|it| &mut it.0);
        began.chain(asked).chain(holds).chain(starts).for_each(|at| *at = now.min(*at));
    }

    /// Forgets what is over: no clock that is set back brings it back.
    pub fn tidy(&mut self, limits: &Limits, now: Millis) {
        let is_over = |since, lasts| end_of(since, lasts, now) <= now;
        let delay = self.delay_at(limits, now).unwrap_or(0);
        self.started = self.started.filter(|since| !is_over(*since, delay));
        let rest = |took| limits.rest.map_or(0, |rest| rest.after(took));
        self.ended = self.ended.filter(|(since, took)| !is_over(*since, rest(*took)));
        self.pause = self.pause.filter(|(since, lasts)| !is_over(*since, *lasts));
        self.delay = self.delay.filter(|(_, since, lasts)| !is_over(*since, *lasts));
        self.hold = self.hold.take().filter(|hold| !hold.is_over(now));
    }

    /// The delay that holds now: a worker may have asked for a longer one.
    fn delay_at(&self, limits: &Limits, now: Millis) -> Option<Millis> {
        let asked = self.delay.filter(|(_, since, lasts)| end_of(*since, *lasts, now) > now);
        limits.delay.max(asked.map(|(delay, ..)| delay))
    }

    /// Whether nothing is in it, and nothing must be remembered of it.
    pub fn is_over(&self, limits: &Limits, now: Millis) -> bool {
        let is_used = self.tasks > 0 || self.waiting > 0 || self.in_flight > 0;
        let is_known = self.hold.is_some() || self.delay.is_some();
        let is_open = self.opening(limits, now) == Opening::Open;
        !is_used && !is_known && is_open && self.is_over_at(limits, now).is_none()
    }

    /// A worker asks for a pause, or for another delay and for how long, in seconds; not for more than the limits allow.
    pub fn asks(
        &mut self,
        limits: &Limits,
        pause: Option<u32>,
        delay: Option<(u32, u32)>,
        now: Millis,
    ) {
        self.notice(now);
        let most = limits.asked_max.unwrap_or(ASKED_MAX);
        let millis = |seconds: u32| i64::from(seconds).saturating_mul(1_000);
        let until = |(since, lasts): (Millis, Millis)| end_of(since, lasts, now);
        if let Some(pause) = pause {
            let asked = (now, millis(pause).min(most));
            // A longer one that another worker asked for stands.
            self.pause = self.pause.filter(|known| until(*known) > until(asked)).or(Some(asked));
        }
        if let Some((delay, lasts)) = delay {
            self.delay = Some((millis(delay).min(most), now, millis(lasts)));
        }
    }

    /// When its rate has no start to count any more, and a delay that a worker asked for is over, if nothing is in it.
    pub fn is_over_at(&self, limits: &Limits, now: Millis) -> Option<Millis> {
        if self.tasks > 0 {
            return None;
        }
        let counted = self.starts.last().zip(limits.rate);
        let counted = counted.map(|((last, _), rate)| end_of(*last, rate.window, now));
        let asked = self.delay.map(|(_, since, lasts)| end_of(since, lasts, now));
        counted.into_iter().chain(asked).max().filter(|over| *over > now)
    }

    /// A job of it starts.
    pub fn starts(&mut self, limits: &Limits, now: Millis) {
        self.notice(now);
        self.in_flight = self.in_flight.saturating_add(1);
        self.started = Some(now);
        let Some(rate) = limits.rate else {
            self.starts.clear();
            return;
        };
        self.starts.retain(|(at, _)| end_of(*at, rate.window, now) > now);
        // 0: each start counts by itself.
        let part = if i64::from(rate.starts) > PARTS { rate.window / PARTS } else { 0 };
        let of = |at: Millis| if part > 0 { at.div_euclid(part) } else { at };
        match self.starts.last_mut() {
            Some(last) if of(last.0) == of(now) => *last = (now, last.1.saturating_add(1)),
            _ => self.starts.push((now, 1)),
        }
    }

    /// A job of it, which took that long, is no longer out.
    pub fn ends(&mut self, limits: &Limits, took: Millis, now: Millis) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.ended = Some((now, took.max(0)));
        self.see(limits, now);
    }

    /// Somebody looks at it: what is over is forgotten.
    pub fn see(&mut self, limits: &Limits, now: Millis) {
        self.notice(now);
        self.tidy(limits, now);
    }

    pub fn opening(&self, limits: &Limits, now: Millis) -> Opening {
        if self.hold.as_ref().is_some_and(|hold| hold.lasts.is_none()) {
            return Opening::Held;
        }
        if limits.max_in_flight.is_some_and(|most| self.in_flight >= i64::from(most)) {
            return Opening::Full;
        }
        let is_held = self.hold.as_ref().is_some_and(|hold| !hold.is_over(now));
        let until = self.ends_of_delays(limits, now);
        match until.chain(self.rate_opens(limits, now)).max() {
            Some(at) if at > now && is_held => Opening::HeldUntil(at),
            Some(at) if at > now => Opening::At(at),
            _ => Opening::Open,
        }
    }

    /// When all that closes it for a time is over, or was.
    fn ends_of_delays(&self, limits: &Limits, now: Millis) -> impl Iterator<Item = Millis> {
        let hold = self.hold.as_ref().and_then(|hold| hold.lasts);
        let delayed = self.started.zip(self.delay_at(limits, now));
        let rested = self.ended.zip(limits.rest).map(|((at, took), rest)| (at, rest.after(took)));
        let until = [hold, self.pause, delayed, rested].into_iter().flatten();
        until.map(move |(since, lasts)| end_of(since, lasts, now))
    }

    /// Whether it remembers what is over: somebody should [look](Self::see).
    pub fn is_to_see(&self, limits: &Limits, now: Millis) -> bool {
        self.ends_of_delays(limits, now).any(|end| end <= now)
    }

    /// When one more start is within the rate.
    fn rate_opens(&self, limits: &Limits, now: Millis) -> Option<Millis> {
        let rate = limits.rate?;
        let ends = |(at, count): &(Millis, u32)| (end_of(*at, rate.window, now), *count);
        let counted = self.starts.iter().map(ends).filter(|(end, _)| *end > now);
        let all = counted.clone().map(|(_, count)| u64::from(count)).sum::<u64>();
        let mut surplus = (all + 1).saturating_sub(u64::from(rate.starts));
        let mut opens = None;
        for (end, count) in counted {
            if surplus == 0 {
                break;
            }
            opens = Some(end);
            surplus = surplus.saturating_sub(u64::from(count));
        }
        opens
    }
}

/// The end of what began then and lasts so long.
fn end_of(since: Millis, lasts: Millis, now: Millis) -> Millis {
    since.min(now).saturating_add(lasts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::groups::{Rate, Rest};

    const NO: Limits =
        Limits { max_in_flight: None, delay: None, rest: None, rate: None, asked_max: None };

    #[test]
    fn it_opens_at_the_latest_of_all() {
        let rest = Rest { factor: 5.0, min: 1_000, max: 60_000 };
        let limits = Limits { max_in_flight: Some(2), delay: Some(4_000), rest: Some(rest), ..NO };
        let mut it = Group::default();
        assert_eq!(it.opening(&limits, 0), Opening::Open);
        it.starts(&limits, 0);
        assert_eq!(it.opening(&limits, 0), Opening::At(4_000));
        it.starts(&limits, 4_000);
        assert_eq!(it.opening(&limits, 9_000), Opening::Full);
        it.ends(&limits, 2_000, 9_000);
        assert_eq!(it.opening(&limits, 9_000), Opening::At(19_000));
        it.pause = Some((9_000, 120_000));
        assert_eq!(it.opening(&limits, 9_000), Opening::At(129_000));
        it.hold = Some(Hold { since: 0, lasts: None, reason: String::new(), by: "op".into() });
        assert_eq!(it.opening(&limits, 9_000), Opening::Held);
    }

    #[test]
    fn a_clock_that_was_ahead_closes_it_no_longer_than_its_delay() {
        let limits = Limits { delay: Some(5_000), ..NO };
        let mut it = Group::default();
        it.starts(&limits, 1_000_000);
        assert_eq!(it.opening(&limits, 10_000), Opening::At(15_000));
    }

    #[test]
    fn a_worker_may_ask_for_a_longer_delay() {
        let limits = Limits { delay: Some(5_000), ..NO };
        let mut it = Group { delay: Some((10_000, 0, 60_000)), ..Group::default() };
        it.starts(&limits, 0);
        assert_eq!(it.opening(&limits, 0), Opening::At(10_000));
        it.starts(&limits, 60_000);
        assert_eq!(it.opening(&limits, 60_000), Opening::At(65_000));
    }

    proptest! {
        /// Whenever its jobs start as soon as it is open, no window has more than its rate, and few fewer.
        #[test]
        fn no_window_has_more_starts(
            starts in 1..300_u32,
            window in 1_000..1_000_000_i64,
            pauses in prop::collection::vec(0..50_000_i64, 1..400),
        ) {
            let rate = Rate { starts, window };
            let limits = Limits { rate: Some(rate), ..NO };
            let (mut it, mut now, mut all) = (Group::default(), 0, Vec::new());
            for pause in pauses {
                now = it.opening(&limits, now + pause).due().unwrap_or(now + pause);
                prop_assert_eq!(it.opening(&limits, now), Opening::Open);
                it.starts(&limits, now);
                it.ends(&limits, 0, now);
                all.push(now);
                let first = all.partition_point(|at| *at <= now - window);
                prop_assert!(all.len() - first <= starts as usize, "{} at {now}", all.len() - first);
                prop_assert!(it.starts.len() as i64 <= PARTS + 2);
            }
        }
    }
}
