//! Requests of protocol 2 as whoever asks writes them. What the daemon reads is [`session`](super::session)'s; its
//! tests write each request and read it again.

use std::fmt;

use super::session::{Control, Hello, SessionRequest, VERSION, Word};
use crate::model::Row;

impl fmt::Display for Hello {
    /// The line, without its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HELLO {VERSION} {} {}", self.worker, self.lease_seconds)
    }
}

/// The request's line without its end; several lines where it stands for several.
impl fmt::Display for SessionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { wait } if wait.is_zero() => f.write_str("READY"),
            Self::Ready { wait } => write!(f, "READY {}", wait.as_secs()),
            Self::Attempt(attempt, Word::Done(code)) => write!(f, "DONE {} {code}", attempt.0),
            Self::Attempt(attempt, Word::Beat) => write!(f, "BEAT {}", attempt.0),
            Self::Attempt(attempt, Word::Release) => write!(f, "RELEASE {}", attempt.0),
            Self::Next { attempt, exit_code, wait } => {
                let done = Self::Attempt(*attempt, Word::Done(*exit_code));
                write!(f, "{done}\n{}", Self::Ready { wait: *wait })
            }
            Self::Quit => f.write_str("QUIT"),
            Self::Health => f.write_str("HEALTH"),
            Self::Add(tasks) => {
                let lines = tasks.iter().map(|Row { key, payload }| format!("ADD {key} {payload}"));
                f.write_str(&lines.collect::<Vec<_>>().join("\n"))
            }
            Self::Status => f.write_str("STATUS"),
            Self::Why(key) => write!(f, "WHY {key}"),
            Self::Queue(count) => write!(f, "QUEUE {count}"),
            Self::Log(count) => write!(f, "LOG {count}"),
            Self::Control(control) => write!(f, "{control}"),
            Self::RunFetcher(name) => write!(f, "RUN-FETCHER {name}"),
            Self::AcceptInput => f.write_str("ACCEPT-INPUT"),
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Retry(key, None) => write!(f, "RETRY {key}"),
            Self::Retry(key, Some(fetcher)) => write!(f, "RETRY-OF {key} {fetcher}"),
            Self::Requeue(key) => write!(f, "REQUEUE {key}"),
            Self::Pause => f.write_str("PAUSE"),
            Self::Resume => f.write_str("RESUME"),
            Self::Drain => f.write_str("DRAIN"),
            Self::Cancel(key) => write!(f, "CANCEL {key}"),
        }
    }
}
