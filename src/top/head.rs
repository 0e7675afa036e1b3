//! The head: which queue it is, the state of its daemon, what is wrong with the whole, and the most important numbers.
//! Pure.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Sparkline, Widget};
use shiftboss_protocol::answers::MinuteJobs;
use unicode_width::UnicodeWidthStr;

use super::commits::Commits;
use super::picture::Picture;
use super::state::State;
use super::theme::Theme;
use crate::text::{cut, cut_middle, timestamp};
use crate::view::health::Up;
use crate::view::status;

const MINUTES: i64 = 60;
/// From this number of columns on there is room for less important parts.
const WIDE: usize = 60;
const GAP: &str = "   ";
const KEY_WIDTH: usize = 24;
const METERS_MAX: usize = 4;

pub struct Head<'a> {
    about: Vec<Line<'a>>,
    banner: Option<Line<'a>>,
    meters: Vec<Line<'a>>,
    /// Jobs of the last whole minutes, the oldest first.
    jobs: Vec<u64>,
}

impl<'a> Head<'a> {
    /// The head of a frame; without a state, of one that stands alone.
    pub fn new(picture: &Picture, state: Option<&State>, theme: &Theme, width: u16) -> Self {
        let width = usize::from(width);
        let mut meters = flow(numbers(picture, theme), width);
        meters.truncate(METERS_MAX);
        let banner = banner(picture, state).map(|text| {
            let text = cut(&text, width);
            Line::styled(format!("{text:<width$}"), theme.banner)
        });
        let this_minute = picture.snapshot.at.div_euclid(60);
        let minutes = (1..=MINUTES).rev().map(|back| jobs_in(&picture.minutes, this_minute - back));
        Self {
            about: vec![title(picture, state, theme, width), daemon(picture, theme)],
            banner,
            meters,
            jobs: minutes.collect(),
        }
    }

    pub fn banner_at(&self) -> Option<u16> {
        self.banner.as_ref().and_then(|_| u16::try_from(self.about.len()).ok())
    }

    /// How many lines it has; if there is little room, only the first line of each part and no picture.
    pub fn height(&self, is_short: bool) -> u16 {
        let banner = usize::from(self.banner.is_some());
        let lines = match is_short {
            true => 2 + banner,
            false => self.about.len() + banner + self.meters.len() + 1,
        };
        u16::try_from(lines).unwrap_or(u16::MAX)
    }

    pub fn draw(&self, area: Rect, buffer: &mut Buffer, theme: &Theme) {
        let is_short = area.height < self.height(false);
        let (about, meters) = match is_short {
            true => (&self.about[..1], self.meters.get(..1).unwrap_or_default()),
            false => (&*self.about, &*self.meters),
        };
        let lines = about.iter().chain(&self.banner).chain(meters).cloned();
        Text::from_iter(lines).render(area, buffer);
        if !is_short {
            let last = Rect { y: area.bottom().saturating_sub(1), height: 1, ..area };
            self.draw_jobs(last, buffer, theme);
        }
    }

    /// Jobs of the last whole minute, and a picture of those before it; of the last hour, or as much of it as there is
    /// room for.
    fn draw_jobs(&self, area: Rect, buffer: &mut Buffer, theme: &Theme) {
        let most = self.jobs.iter().copied().max().unwrap_or(0);
        let last = self.jobs.last().copied().unwrap_or(0).to_string();
        let begin = Line::from(meter("jobs/min", last, theme.value, theme));
        let end = Line::from(meter("max", most.to_string(), theme.value, theme));
        let width = |line: &Line<'_>| u16::try_from(line.width()).unwrap_or(u16::MAX);
        let minutes = u16::try_from(self.jobs.len()).unwrap_or(u16::MAX);
        let [at_begin, picture, at_end] = Layout::horizontal([
            Constraint::Length(width(&begin)),
            Constraint::Max(minutes),
            Constraint::Length(width(&end)),
        ])
        .spacing(1)
        .areas(area);
        let first = self.jobs.len().saturating_sub(picture.width.into());
        // However few they are, they are seen.
        let seen = |jobs: &u64| if *jobs > 0 { (*jobs).max(most.div_ceil(8)) } else { 0 };
        let data: Vec<u64> = self.jobs[first..].iter().map(seen).collect();
        begin.render(at_begin, buffer);
        let bars = Sparkline::default().data(&data).max(most).bar_set(theme.bars.clone());
        bars.style(theme.good).render(picture, buffer);
        end.render(at_end, buffer);
    }
}

/// The database on the left; on the right when it was last looked at, and how often.
fn title<'a>(picture: &Picture, state: Option<&State>, theme: &Theme, width: usize) -> Line<'a> {
    let name = "shiftboss ";
    let time = clock(picture.snapshot.at);
    let right = match state {
        Some(state) if state.is_frozen => format!("FROZEN {time}"),
        Some(_) if width < WIDE => time,
        Some(state) => format!("{time} every {}", humantime::format_duration(state.interval)),
        None => timestamp(picture.snapshot.at),
    };
    let room = width.saturating_sub(name.len() + right.len() + 1);
    let database = cut_middle(&picture.snapshot.target.database.to_string(), room);
    let space = room.saturating_sub(database.width()) + 1;
    Line::from(vec![
        Span::styled(name, theme.title),
        Span::raw(database + &" ".repeat(space)),
        Span::styled(right, theme.label),
    ])
}

fn clock(second: i64) -> String {
    timestamp(second).get(11..).unwrap_or_default().to_owned()
}

fn daemon<'a>(picture: &Picture, theme: &Theme) -> Line<'a> {
    let snapshot = &picture.snapshot;
    let (target, queue) = (&snapshot.target, &snapshot.queue);
    let style = match snapshot.up() {
        Up::Running => theme.good,
        Up::Unknown(_) => theme.warning,
        Up::OthersOnly | Up::Down => theme.bad,
    };
    Line::from(vec![
        Span::styled(status::daemon(target, queue, snapshot.at), style),
        Span::raw(theme.separator),
        Span::raw(status::rules(target, queue)),
    ])
}

/// What keeps the whole queue from going on, the worst first.
fn banner(picture: &Picture, state: Option<&State>) -> Option<String> {
    let at = picture.snapshot.at;
    if let Some(why) = state.and_then(|state| state.failure.as_ref()) {
        return Some(format!("NO ANSWER, values of {}: {why}", clock(at)));
    }
    let health = picture.snapshot.health();
    let trouble = health.banner()?;
    let seen = state.and_then(|state| state.seen).filter(|_| !picture.has_daemon());
    let seen = seen.map_or(String::new(), |seen| format!("; last seen at {}", clock(seen)));
    Some(format!("{}: {}{seen}", trouble.subject.to_uppercase(), trouble.text))
}

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
    let (queue, at) = (&picture.snapshot.queue, picture.snapshot.at);
    let number = |name, value: i64| meter(name, value.to_string(), theme.value, theme);
    let fault = |name, value: i64| {
        let style = if value > 0 { theme.warning } else { theme.value };
        meter(name, value.to_string(), style, theme)
    };
    let longest = queue.waits_longest();
    let wait = status::longest_wait(queue, at);
    let mut wait = meter("longest wait", wait, theme.value, theme);
    wait.extend(longest.map(|it| Span::raw(format!(" {}", cut(&it.key, KEY_WIDTH)))));
    let counted = picture.metrics.as_ref().map(|metrics| &metrics.counted);
    let connections = counted.map_or("-".to_owned(), |it| it.connections.to_string());
    let rules = i64::try_from(queue.hold_rules.len()).unwrap_or(i64::MAX);
    let rare = [
        ("failed", queue.failed),
        ("delayed", queue.delayed),
        ("backed off", queue.backed_off),
        ("hold rules", rules),
        ("closed groups", status::closed_groups(queue)),
    ];
    let rare = rare.into_iter().filter(|(_, count)| *count > 0);
    let mut meters = vec![
        number("waiting", queue.rows.pending),
        number("in flight", queue.rows.in_flight),
        number("ended", status::ended(queue)),
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
    let time = |time: fn(&Commits) -> f64| {
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

fn jobs_in(minutes: &[MinuteJobs], minute: i64) -> u64 {
    let found = minutes.iter().find(|it| it.since.div_euclid(60) == minute);
    found.map_or(0, |it| it.jobs.max(0).cast_unsigned())
}
