//! Waits in words: until when, and why what is in a group waits. For readers, and for commands that show what they found.

use std::time::Duration;

use humantime::format_duration;
use shiftboss_protocol::answers::{GroupRow, GroupState};
use shiftboss_protocol::model::UnixSeconds;

pub fn until(at: UnixSeconds, now: UnixSeconds) -> String {
    within(at.saturating_sub(now))
}

/// `in 3m 20s`: the two largest units. What has no whole second has no number.
pub fn within(seconds: i64) -> String {
    if seconds < 1 {
        return "in less than a second".to_owned();
    }
    let text = format_duration(Duration::from_secs(seconds.cast_unsigned())).to_string();
    format!("in {}", text.split(' ').take(2).collect::<Vec<_>>().join(" "))
}

/// Why tasks of a group wait, said of the group: `opens in 3m 20s`, `is full`; `None`: not for it.
pub fn closed(it: &GroupRow, now: UnixSeconds) -> Option<String> {
    match (it.state, it.opens) {
        (GroupState::Open, _) => None,
        (_, Some(at)) => Some(format!("opens {}", until(at, now))),
        (state, None) => Some(format!("is {}", state.word())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_group_is_closed() {
        let closed = |state, opens| {
            let (group, reason) = ("g:a".to_owned(), String::new());
            let it = GroupRow { group, state, waiting: 1, in_flight: 0, opens, reason };
            closed(&it, 100).unwrap_or_default()
        };
        assert_eq!(closed(GroupState::Open, None), "");
        assert_eq!(closed(GroupState::Full, None), "is full");
        assert_eq!(closed(GroupState::Held, None), "is held");
        assert_eq!(closed(GroupState::Held, Some(3_701)), "opens in 1h 1s");
        let times = [90, 100, 101].map(|at| closed(GroupState::Delayed, Some(at)));
        let soon = "opens in less than a second";
        assert_eq!(times, [soon, soon, "opens in 1s"]);
    }
}
