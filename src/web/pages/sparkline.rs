//! A line of few numbers, as small as a word: a fetcher's cycle time over the last days. Its numbers are in its title. Pure.

use std::fmt::Write;

use crate::text::span;

pub(super) const DAYS: u32 = 14;
const DAY_SECONDS: i64 = 24 * 3_600;
/// In the picture's own units.
const STEP: i64 = 6;
const HEIGHT: i64 = 20;

pub(super) struct Sparkline {
    /// The points of an SVG polyline.
    pub points: String,
    pub width: i64,
    pub height: i64,
    pub title: String,
}

impl Sparkline {
    /// The cycle times of the days before and with `now`, each with when it began; `None`: fewer than two have one.
    pub fn of(days: &[(i64, i64)], now: i64) -> Option<Self> {
        let first = now.div_euclid(DAY_SECONDS) - i64::from(DAYS) + 1;
        let at = |(since, seconds): &(i64, i64)| (since.div_euclid(DAY_SECONDS) - first, *seconds);
        let known: Vec<(i64, i64)> = days.iter().map(at).filter(|(day, _)| *day >= 0).collect();
        let (shortest, longest) =
            (known.iter().map(|day| day.1).min()?, known.iter().map(|day| day.1).max()?);
        let (_, last) = *known.last().filter(|_| known.len() > 1)?;
        let mut points = String::new();
        for (day, seconds) in &known {
            let y = HEIGHT - 1 - seconds.saturating_mul(HEIGHT - 2) / longest.max(1);
            // Writing to a text does not fail.
            let _ = write!(points, "{},{y} ", day * STEP + STEP / 2);
        }
        let title = format!(
            "cycle time of {} days: {} to {}, at last {}",
            known.len(),
            span(shortest),
            span(longest),
            span(last)
        );
        Some(Self {
            points: points.trim_end().to_owned(),
            width: i64::from(DAYS) * STEP,
            height: HEIGHT,
            title,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days are points where they were; one point is no line.
    #[test]
    fn days_are_points() {
        let days = [(87, 3_600), (99, 7_200), (100, 0)].map(|(day, it)| (day * DAY_SECONDS, it));
        let line = Sparkline::of(&days, 100 * DAY_SECONDS + 5).unwrap();
        assert_eq!(line.points, "3,10 75,1 81,19");
        assert_eq!(line.title, "cycle time of 3 days: 0s to 2h, at last 0s");
        assert!(Sparkline::of(&days[..1], 100 * DAY_SECONDS).is_none());
        assert!(Sparkline::of(&days, 200 * DAY_SECONDS).is_none());
    }
}
