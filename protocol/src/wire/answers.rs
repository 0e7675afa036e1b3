//! The answers of the daemon as its peer reads them, in protocol 2 and in the classic one
//! (docs/protocol.md); but for lines of JSON, which are operators'. Pure: lines in, values out. The daemon's side is [`session`](super::session)'s.

use super::session::VERSION;
use crate::model::{Attempt, Idle};

/// A job as it was handed out, byte for byte: a classic daemon may hand out what is no UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The number it is reported under; `None`: it came by the classic protocol, and is by its key.
    pub attempt: Option<Attempt>,
    /// Its key.
    pub key: Vec<u8>,
    /// The rest of its line.
    pub payload: Vec<u8>,
}

impl Job {
    /// The number of its attempt, for people and environments.
    #[must_use]
    pub fn number(&self) -> Option<i64> {
        self.attempt.map(|attempt| attempt.0)
    }

    /// The key for people; what is not UTF-8 is replaced.
    #[must_use]
    pub fn shown_key(&self) -> String {
        String::from_utf8_lossy(&self.key).into_owned()
    }
}

/// An answer of protocol 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The daemon speaks it too.
    Hello,
    /// The next job.
    Job(Job),
    /// There is none, and why.
    NoJobs(Idle),
    /// Done as asked.
    Ok,
    /// The attempt is ours no longer.
    Lost,
    /// Not done: a word for programs, and a text for people.
    Error {
        /// The word.
        code: String,
        /// The text.
        text: String,
    },
}

impl Answer {
    /// Reads a line of a connection that said `HELLO`, without its end; `None`: it is no answer.
    #[must_use]
    pub fn read(line: &[u8]) -> Option<Self> {
        let (word, rest) = split(line);
        Some(match (word, rest) {
            (b"HELLO", Some(rest)) if split(rest).0 == VERSION.as_bytes() => Self::Hello,
            (b"JOB", Some(rest)) => {
                let (attempt, rest) = split(rest);
                let attempt = std::str::from_utf8(attempt).ok()?.parse().ok()?;
                Self::Job(job(Some(Attempt(attempt)), rest?)?)
            }
            (b"NOJOBS", reason) => Self::NoJobs(idle(reason.unwrap_or_default())),
            (b"OK", None) => Self::Ok,
            (b"LOST", None) => Self::Lost,
            (b"ERROR", Some(rest)) => {
                let (code, text) = split(rest);
                let shown = |bytes| String::from_utf8_lossy(bytes).into_owned();
                Self::Error { code: shown(code), text: shown(text.unwrap_or_default()) }
            }
            _ => return None,
        })
    }

    /// Reads an answer of the classic protocol, without its end.
    #[must_use]
    pub fn read_classic(line: &[u8]) -> Option<Self> {
        match split(line) {
            (b"JOB", Some(rest)) => job(None, rest).map(Self::Job),
            (b"NOJOBS", None) => Some(Self::NoJobs(Idle::Nothing)),
            _ => None,
        }
    }
}

/// What stands before the first space, and what behind it.
fn split(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match line.iter().position(|byte| *byte == b' ') {
        Some(space) => (&line[..space], Some(&line[space + 1..])),
        None => (line, None),
    }
}

/// A reason that is not known is none: another daemon may have more of them.
fn idle(reason: &[u8]) -> Idle {
    let (word, jobs) = split(reason);
    let jobs = jobs.and_then(|jobs| std::str::from_utf8(jobs).ok()?.parse().ok());
    match (word, jobs) {
        (b"paused", jobs) => Idle::Paused(jobs.unwrap_or(0)),
        (b"busy", Some(jobs)) => Idle::Busy(jobs),
        _ => Idle::Nothing,
    }
}

/// A payload may begin with a space, and be empty.
fn job(attempt: Option<Attempt>, text: &[u8]) -> Option<Job> {
    let (key, payload) = split(text);
    let payload = payload.unwrap_or_default();
    (!key.is_empty()).then(|| Job { attempt, key: key.to_vec(), payload: payload.to_vec() })
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::model::{Key, Row};
    use crate::wire::session::{ErrorCode, SessionAnswer};

    fn job(attempt: Option<i64>, key: &str, payload: &str) -> Answer {
        Answer::Job(Job { attempt: attempt.map(Attempt), key: key.into(), payload: payload.into() })
    }

    /// Every answer is distinguished from every other, and a payload is kept byte for byte.
    #[test]
    fn answers_are_read() {
        let read = |line: &str| Answer::read(line.as_bytes());
        assert_eq!(read("JOB 17 alpha  8.06 "), Some(job(Some(17), "alpha", " 8.06 ")));
        assert_eq!(read("JOB 17 alpha "), Some(job(Some(17), "alpha", "")));
        assert_eq!(read("HELLO 2 0.1.0 READY DONE"), Some(Answer::Hello));
        for (line, idle) in [
            ("NOJOBS", Idle::Nothing),
            ("NOJOBS paused 7", Idle::Paused(7)),
            ("NOJOBS paused", Idle::Paused(0)),
            ("NOJOBS busy 3", Idle::Busy(3)),
            ("NOJOBS busy", Idle::Nothing),
            ("NOJOBS asleep 4", Idle::Nothing),
        ] {
            assert_eq!(read(line), Some(Answer::NoJobs(idle)), "{line}");
        }
        let busy = Answer::Error { code: "busy".to_owned(), text: "say it again".to_owned() };
        assert_eq!(read("ERROR busy say it again"), Some(busy));
        for other in
            ["", "JOB", "JOB 17", "JOB x alpha 1", "JOB 17  1", "HELLO 3 1", "NOJOBS,", "ok"]
        {
            assert_eq!(read(other), None, "{other:?}");
        }
    }

    /// What the daemon writes is what its peer reads.
    #[test]
    fn both_ends_agree() {
        let handed = Row { key: Key::stored("é"), payload: " a  b ".to_owned() };
        let denied =
            ("no: \u{1b}x", Answer::Error { code: "denied".into(), text: "no:  x".into() });
        for (written, expected) in [
            (SessionAnswer::Hello, Answer::Hello),
            (SessionAnswer::Job(Some(Attempt(7)), &handed), job(Some(7), "é", " a  b ")),
            (SessionAnswer::NoJobs(Idle::Nothing), Answer::NoJobs(Idle::Nothing)),
            (SessionAnswer::NoJobs(Idle::Paused(3)), Answer::NoJobs(Idle::Paused(3))),
            (SessionAnswer::NoJobs(Idle::Busy(4)), Answer::NoJobs(Idle::Busy(4))),
            (SessionAnswer::Ok, Answer::Ok),
            (SessionAnswer::Lost, Answer::Lost),
            (SessionAnswer::Error(ErrorCode::Denied, denied.0), denied.1),
        ] {
            let mut line = BytesMut::new();
            written.encode(&mut line);
            assert_eq!(Answer::read(line.strip_suffix(b"\n").unwrap()), Some(expected));
        }
    }

    /// A classic answer has no attempt, whatever its key looks like.
    #[test]
    fn classic_answers_are_read() {
        let read = |line: &str| Answer::read_classic(line.as_bytes());
        assert_eq!(read("JOB 17 alpha 1"), Some(job(None, "17", "alpha 1")));
        assert_eq!(read("NOJOBS"), Some(Answer::NoJobs(Idle::Nothing)));
        assert_eq!(read("NOJOBS paused 7"), None);
        assert_eq!((read("OK"), read("JOB "), read("")), (None, None, None));
    }
}
