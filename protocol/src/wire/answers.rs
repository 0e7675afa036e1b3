//! The answers of the daemon in protocol 2 and in the classic one (docs/protocol.md), as it writes them and its peer
//! reads them, except the lines of JSON for operators. Pure.

use bytes::{BufMut, BytesMut};

use super::session::{Refused, VERSION};
use crate::model::{About, Attempt, Idle, Row};
use crate::verbs::{VERBS, escaped, unescaped};

/// A job as it was handed out, byte for byte: a classic daemon may hand out text that is not UTF-8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The number to report it under; `None`: it came by the classic protocol, and is reported by its key.
    pub attempt: Option<Attempt>,
    pub key: Vec<u8>,
    pub payload: Vec<u8>,
    /// Only if the worker [named fetchers](crate::verbs::Fetchers).
    pub about: Option<About>,
}

impl Job {
    pub fn of(attempt: Option<Attempt>, Row { key, payload }: &Row) -> Self {
        let (key, payload) = (key.as_str().into(), payload.as_bytes().into());
        Self { attempt, key, payload, about: None }
    }

    /// The number of its attempt, for people and environments.
    pub fn number(&self) -> Option<i64> {
        self.attempt.map(|attempt| attempt.0)
    }

    /// The key for people; what is not UTF-8 is replaced.
    pub fn shown_key(&self) -> String {
        String::from_utf8_lossy(&self.key).into_owned()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The daemon speaks protocol 2, too; it lists its requests.
    Hello,
    Job(Job),
    /// There is none, and why.
    NoJobs(Idle),
    Ok,
    /// The attempt's job is to stop.
    Stop,
    /// The attempt is no longer ours.
    Lost,
    /// Not done: a word for programs, and a text for people.
    Error {
        code: String,
        text: String,
    },
}

impl Answer {
    /// Reads a line of a connection that said `HELLO`, without its end; `None`: it is not an answer.
    pub fn read(line: &[u8]) -> Option<Self> {
        let (word, rest) = split(line);
        Some(match (word, rest) {
            (b"HELLO", Some(rest)) if split(rest).0 == VERSION.as_bytes() => Self::Hello,
            (b"JOB", Some(rest)) => {
                let (attempt, rest) = split(rest);
                let attempt = std::str::from_utf8(attempt).ok()?.parse().ok()?;
                Self::Job(job(Some(Attempt(attempt)), rest?)?)
            }
            (b"JOB-OF", Some(rest)) => Self::Job(job_of(rest)?),
            (b"NOJOBS", reason) => Self::NoJobs(idle(reason.unwrap_or_default())),
            (b"OK", None) => Self::Ok,
            (b"STOP", None) => Self::Stop,
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
    pub fn read_classic(line: &[u8]) -> Option<Self> {
        match split(line) {
            (b"JOB", Some(rest)) => job(None, rest).map(Self::Job),
            (b"NOJOBS", None) => Some(Self::NoJobs(Idle::default())),
            _ => None,
        }
    }

    pub fn encode(&self, bytes: &mut BytesMut) {
        match self {
            Self::Hello => {
                let verbs = VERBS.iter().flat_map(|verb| [" ", verb.name]);
                let greeting = ["HELLO ", VERSION, " ", env!("CARGO_PKG_VERSION")];
                put(bytes, greeting.into_iter().chain(verbs));
            }
            Self::Job(Job { attempt, key, payload, about }) => {
                let attempt = attempt.map(|attempt| format!("{} ", attempt.0)).unwrap_or_default();
                let about = about.as_ref().map(|about| {
                    let (this, of) = about.tries();
                    format!("{} {this} {of} ", escaped(&about.fetcher))
                });
                let word: &[u8] = if about.is_some() { b"JOB-OF " } else { b"JOB " };
                let about = about.unwrap_or_default();
                put(bytes, [word, attempt.as_bytes(), about.as_bytes(), key, b" ", payload]);
            }
            Self::NoJobs(why) => put_idle(bytes, *why),
            Self::Ok => put(bytes, ["OK"]),
            Self::Stop => put(bytes, ["STOP"]),
            Self::Lost => put(bytes, ["LOST"]),
            Self::Error { code, text } => {
                // A system error may have several lines, and a key in it any character.
                put(bytes, ["ERROR ", code, " ", &text.replace(char::is_control, " ")]);
            }
        }
    }
}

impl From<Refused> for Answer {
    fn from(Refused { code, text }: Refused) -> Self {
        Self::Error { code: code.to_string(), text: text.into_owned() }
    }
}

fn put<P: AsRef<[u8]>>(bytes: &mut BytesMut, parts: impl IntoIterator<Item = P>) {
    parts.into_iter().for_each(|part| bytes.put_slice(part.as_ref()));
    bytes.put_u8(b'\n');
}

/// The parts before and after the first space.
fn split(line: &[u8]) -> (&[u8], Option<&[u8]>) {
    match line.iter().position(|byte| *byte == b' ') {
        Some(space) => (&line[..space], Some(&line[space + 1..])),
        None => (line, None),
    }
}

/// Pairs of a word and a number; unknown ones are left out, because another daemon may have more.
fn idle(reasons: &[u8]) -> Idle {
    let mut idle = Idle::default();
    let mut words = reasons.split(|byte| *byte == b' ');
    while let Some(word) = words.next() {
        let number = words.next().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
        match word {
            b"paused" => idle.paused = Some(number.unwrap_or(0)),
            b"busy" => idle.busy = number.unwrap_or(0),
            b"delayed" => idle.delayed = number.unwrap_or(0),
            b"held" => idle.held = number.unwrap_or(0),
            b"groups" => idle.groups = number.unwrap_or(0),
            b"others" => idle.others = number.unwrap_or(0),
            b"due" => idle.due = number,
            _ => {}
        }
    }
    idle
}

fn put_idle(bytes: &mut BytesMut, Idle { paused, busy, delayed, held, groups, others, due }: Idle) {
    let some = |number: u32| (number > 0).then_some(number);
    let reasons = [
        ("paused", paused),
        ("busy", some(busy)),
        ("delayed", some(delayed)),
        ("held", some(held)),
        ("groups", some(groups)),
        ("others", some(others)),
        ("due", due),
    ];
    let reasons =
        reasons.into_iter().filter_map(|(word, number)| Some(format!(" {word} {}", number?)));
    put(bytes, std::iter::once("NOJOBS".to_owned()).chain(reasons));
}

/// A job with what its worker gets besides.
fn job_of(text: &[u8]) -> Option<Job> {
    let mut rest = text;
    let mut word = || {
        let (word, after) = split(rest);
        rest = after?;
        std::str::from_utf8(word).ok()
    };
    let attempt = Attempt(word()?.parse().ok()?);
    let fetcher = unescaped(word()?)?;
    let (this, of): (u32, u32) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let about = About { fetcher, retry: this.checked_sub(1)?, retries: of.checked_sub(1)? };
    job(Some(attempt), rest).map(|job| Job { about: Some(about), ..job })
}

/// A payload may begin with a space, and be empty.
fn job(attempt: Option<Attempt>, text: &[u8]) -> Option<Job> {
    let (key, payload) = split(text);
    let payload = payload.unwrap_or_default();
    let (key, payload) = (key.to_vec(), payload.to_vec());
    (!key.is_empty()).then_some(Job { attempt, key, payload, about: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(attempt: Option<i64>, key: &str, payload: &str) -> Answer {
        let (key, payload) = (key.into(), payload.into());
        Answer::Job(Job { attempt: attempt.map(Attempt), key, payload, about: None })
    }

    /// Every answer is distinguished from every other, and a payload is kept byte for byte.
    #[test]
    fn answers_are_read() {
        let read = |line: &str| Answer::read(line.as_bytes());
        assert_eq!(read("JOB 17 alpha  8.06 "), Some(job(Some(17), "alpha", " 8.06 ")));
        assert_eq!(read("JOB 17 alpha "), Some(job(Some(17), "alpha", "")));
        assert_eq!(read("HELLO 2 0.1.0 READY DONE"), Some(Answer::Hello));
        let all = Idle { busy: 3, delayed: 2, held: 1, due: Some(60), ..Idle::default() };
        for (line, idle) in [
            ("NOJOBS", Idle::default()),
            ("NOJOBS paused 7", Idle { paused: Some(7), ..Idle::default() }),
            ("NOJOBS paused", Idle { paused: Some(0), ..Idle::default() }),
            ("NOJOBS busy", Idle::default()),
            ("NOJOBS busy 3 asleep 4 delayed 2 held 1 due 60", all),
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

    /// A classic answer has no attempt, whatever its key looks like.
    #[test]
    fn classic_answers_are_read() {
        let read = |line: &str| Answer::read_classic(line.as_bytes());
        assert_eq!(read("JOB 17 alpha 1"), Some(job(None, "17", "alpha 1")));
        assert_eq!(read("NOJOBS"), Some(Answer::NoJobs(Idle::default())));
        assert_eq!(read("NOJOBS paused 7"), None);
        assert_eq!((read("OK"), read("JOB "), read("")), (None, None, None));
    }
}
