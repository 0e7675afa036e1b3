//! The head: which queue it is, how its daemon is, what is wrong with all of it, and the numbers that are looked at first. Pure.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use shiftboss_actors::live::Live;
use shiftboss_queue::answers::{DaemonState, MinuteJobs, QueueStatus};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::live::Unknown;
use crate::lock::LockState;
use crate::text::{cut, shown, span, timestamp};
use crate::top::picture::Picture;
use crate::top::state::State;
use crate::top::theme::Theme;
use crate::up::{running, runs};

const MINUTES: i64 = 60;
/// From so many columns on there is room for what could be done without.
const WIDE: usize = 60;
const ELLIPSIS: &str = "...";
/// What stands between two numbers.
const GAP: &str = "   ";
/// Columns of the key that waits longest.
const KEY_WIDTH: usize = 24;
/// Lines of meters at the most.
const METERS_MAX: usize = 4;

/// The lines of a head.
pub struct Head<'a> {
    about: Vec<Line<'a>>,
    banner: Option<Line<'a>>,
    meters: Vec<Line<'a>>,
}

impl<'a> Head<'a> {
    /// For where there is little room.
    pub fn make_short(&mut self) {
        self.about.truncate(1);
        self.meters.truncate(1);
    }

    pub fn banner_at(&self) -> Option<u16> {
        self.banner.as_ref().and_then(|_| u16::try_from(self.about.len()).ok())
    }

    pub fn all(&self) -> Vec<Line<'a>> {
        self.about.iter().chain(&self.banner).chain(&self.meters).cloned().collect()
    }
}

/// The head of a frame; without a state, of one that stands alone.
pub fn lines<'a>(picture: &Picture, state: Option<&State>, theme: &Theme, width: u16) -> Head<'a> {
    let width = usize::from(width);
    let mut meters = flow(numbers(picture, theme), width);
    meters.truncate(METERS_MAX);
    meters.push(jobs(picture, theme, width));
    let banner = banner(picture, state).map(|text| {
        let text = cut(&text, width);
        Line::styled(format!("{text:<width$}"), theme.banner)
    });
    Head {
        about: vec![title(picture, state, theme, width), daemon(picture, theme)],
        banner,
        meters,
    }
}

/// The database on the left; on the right when it was looked at, and how often it is.
fn title<'a>(picture: &Picture, state: Option<&State>, theme: &Theme, width: usize) -> Line<'a> {
    let name = "shiftboss ";
    let time = clock(picture.at);
    let right = match state {
        Some(state) if state.is_frozen => format!("FROZEN {time}"),
        Some(_) if width < WIDE => time,
        Some(state) => format!("{time} every {}", humantime::format_duration(state.interval)),
        None => timestamp(picture.at),
    };
    let room = width.saturating_sub(name.len() + right.len() + 1);
    let database = end_of(&shown(&picture.target.database.to_string()), room);
    let space = room.saturating_sub(database.width()) + 1;
    Line::from(vec![
        Span::styled(name, theme.title),
        Span::raw(database + &" ".repeat(space)),
        Span::styled(right, theme.label),
    ])
}

/// A path's end says more than its beginning.
fn end_of(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(ELLIPSIS.len());
    let fits = |character: &char| {
        let rest = left.checked_sub(character.width().unwrap_or(0));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let end: Vec<char> = text.chars().rev().take_while(fits).collect();
    ELLIPSIS.to_owned() + &end.into_iter().rev().collect::<String>()
}

/// The time of a day, in UTC.
fn clock(second: i64) -> String {
    timestamp(second).get(11..).unwrap_or_default().to_owned()
}

fn daemon<'a>(picture: &Picture, theme: &Theme) -> Line<'a> {
    let queue = &picture.queue;
    let (state, style) = match &picture.target.daemon {
        LockState::By(daemon) => {
            let started = i64::try_from(daemon.started).unwrap_or(picture.at);
            let up = span(picture.at.saturating_sub(started));
            (format!("running, pid {}, up {up}", daemon.pid), theme.good)
        }
        _ if !queue.daemons.is_empty() => {
            let running = running(&queue.daemons);
            let style = if running > 0 { theme.good } else { theme.bad };
            (format!("{running} of {} daemons running", queue.daemons.len()), style)
        }
        LockState::Free => ("not running".to_owned(), theme.bad),
        LockState::Unknown(why) => (format!("whether one runs is not known: {why}"), theme.warning),
    };
    let lease = queue.lease_seconds.map(|seconds| format!("lease {}", span(seconds)));
    let durability = queue.durability.as_ref().map(|it| format!("durability {}", shown(it)));
    let rules = [queue.policy.as_deref().map(shown), lease, durability].into_iter().flatten();
    let rules = rules.map(|rule| Span::raw(theme.separator.to_owned() + &rule));
    Line::from_iter(std::iter::once(Span::styled(state, style)).chain(rules))
}

/// What keeps all of the queue from going on, the worst first.
fn banner(picture: &Picture, state: Option<&State>) -> Option<String> {
    let Picture { at, queue, live, .. } = picture;
    let (failure, seen) = state.map_or((None, None), |state| (state.failure.as_ref(), state.seen));
    let seen = seen.map_or(String::new(), |seen| format!(", last seen at {}", clock(seen)));
    if let Some(why) = failure {
        return Some(format!("NO ANSWER, values of {}: {why}", clock(*at)));
    }
    if let Some(place) = &queue.moved_to {
        return Some(format!("MOVED to {place}"));
    }
    if !picture.has_daemon() {
        let at = clock(*at);
        return Some(format!("STOPPED: no daemon runs{seen}; the database at {at}"));
    }
    let outage =
        live.as_ref().ok().and_then(Option::as_ref).and_then(|it| it.health.outage.as_ref());
    if let Some(outage) = outage {
        let since = span(at.saturating_sub(outage.since));
        return Some(format!("NOTHING CAN BE WRITTEN for {since}: {}", outage.error));
    }
    if let Err(Unknown::Silent(why)) = live {
        return Some(format!("NO ANSWER from the daemon: {why}"));
    }
    if let Some(since) = queue.directory_lost_since {
        let reason = queue.directory_lost_reason.as_deref().unwrap_or("it is gone");
        return Some(format!("INPUT LOST for {}: {reason}", span(at.saturating_sub(since))));
    }
    if is_draining(queue, live) {
        return Some(
            "DRAINING: nothing is handed out, and the daemon stops when no job is in flight"
                .to_owned(),
        );
    }
    queue.paused.then(|| "PAUSED: nothing is handed out until it is resumed".to_owned())
}

fn is_draining(queue: &QueueStatus, live: &Result<Option<Live>, Unknown>) -> bool {
    let running: Vec<_> = queue.daemons.iter().filter(|daemon| runs(daemon)).collect();
    let all_drain = running.iter().all(|daemon| daemon.state == DaemonState::Draining);
    matches!(live, Ok(Some(live)) if live.health.draining) || !running.is_empty() && all_drain
}

/// A number and what it is.
type Meter<'a> = Vec<Span<'a>>;

fn meter<'a>(
    name: &'static str,
    value: impl Into<String>,
    style: Style,
    theme: &Theme,
) -> Meter<'a> {
    vec![Span::styled(name, theme.label), Span::raw(" "), Span::styled(value.into(), style)]
}

fn numbers<'a>(picture: &Picture, theme: &Theme) -> Vec<Meter<'a>> {
    let Picture { queue, at, .. } = picture;
    let number = |name, value: i64| meter(name, value.to_string(), theme.value, theme);
    let fault = |name, value: i64| {
        let style = if value > 0 { theme.warning } else { theme.value };
        meter(name, value.to_string(), style, theme)
    };
    let longest = queue.waits_longest();
    let wait = longest.map_or("-".to_owned(), |it| {
        it.last_started.map_or("never ran".to_owned(), |it| span(at.saturating_sub(it)))
    });
    let mut wait = meter("longest wait", wait, theme.value, theme);
    wait.extend(longest.map(|it| Span::raw(format!(" {}", cut(&it.key, KEY_WIDTH)))));
    let counted = picture.metrics.as_ref().map(|metrics| &metrics.counted);
    let connections = counted.map_or("-".to_owned(), |it| it.connections.to_string());
    let rare = [("delayed", queue.delayed), ("backed off", queue.backed_off)];
    let rare = rare.into_iter().filter(|(_, count)| *count > 0);
    let mut meters = vec![
        number("waiting", queue.rows.pending),
        number("in flight", queue.rows.in_flight),
        number("dispatched", queue.rows.dispatched),
        fault("dead letters", queue.dead_letters),
        fault("held", queue.held),
    ];
    meters.extend(rare.map(|(name, count)| fault(name, count)));
    meters.extend([
        wait,
        meter("connections", connections, theme.value, theme),
        commits(picture, theme),
    ]);
    meters
}

fn commits<'a>(picture: &Picture, theme: &Theme) -> Meter<'a> {
    let time = |time: fn(&super::super::commits::Commits) -> f64| {
        picture.commits.as_ref().map_or("-".to_owned(), |it| milliseconds(time(it)))
    };
    let mut shown = meter("commit p50", time(|it| it.p50), theme.value, theme);
    shown.push(Span::raw(" "));
    shown.extend(meter("p99", time(|it| it.p99), theme.value, theme));
    shown
}

fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1_000.0;
    if ms < 10.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// Meters beside each other, as many as fit into a line.
fn flow<'a>(meters: Vec<Meter<'a>>, width: usize) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'a>> = Vec::new();
    for meter in meters {
        let meter = Line::from(meter);
        match lines.last_mut() {
            Some(line) if line.width() + GAP.len() + meter.width() <= width => {
                line.push_span(Span::raw(GAP));
                line.extend(meter);
            }
            _ => lines.push(meter),
        }
    }
    lines
}

/// Jobs of the last whole minute, and of those before it as a picture; of the last hour, or of as much of it as there is room for.
fn jobs<'a>(picture: &Picture, theme: &Theme, width: usize) -> Line<'a> {
    let this_minute = picture.at.div_euclid(60);
    let minutes: Vec<i64> =
        (1..=MINUTES).rev().map(|back| jobs_in(&picture.minutes, this_minute - back)).collect();
    let most = minutes.iter().copied().max().unwrap_or(0);
    let mut line = Line::from(meter(
        "jobs/min",
        minutes.last().map_or(0, |last| *last).to_string(),
        theme.value,
        theme,
    ));
    let mut end = vec![Span::raw(" ")];
    end.extend(meter("max", most.to_string(), theme.value, theme));
    let end = Line::from(end);
    let room = width.saturating_sub(line.width() + 1 + end.width());
    let first = minutes.len().saturating_sub(room);
    let level = |jobs: &i64| theme.levels[level(*jobs, most)];
    let picture: String = minutes[first..].iter().map(level).collect();
    line.push_span(Span::raw(" "));
    line.push_span(Span::styled(picture, theme.good));
    line.extend(end);
    line
}

/// From 0 to 8; however few they are, they are seen.
fn level(jobs: i64, most: i64) -> usize {
    let level = jobs.saturating_mul(8) / most.max(1);
    usize::try_from(level.clamp(i64::from(jobs > 0), 8)).unwrap_or(0)
}

fn jobs_in(minutes: &[MinuteJobs], minute: i64) -> i64 {
    minutes.iter().find(|it| it.since.div_euclid(60) == minute).map_or(0, |it| it.jobs)
}
