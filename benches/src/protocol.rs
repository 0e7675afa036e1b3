//! The protocols that are compared: what is sent, and when an answer is whole.
//!
//! Called by the load generator. Knows no socket.

use std::io::Write;
use std::time::Duration;

use shiftboss_protocol::verbs::{Fetchers, Ready, Wait};
use shiftboss_protocol::wire::answers::{Answer, Job};
use shiftboss_protocol::wire::session::VERSION;

/// How long a worker of protocol 2 waits for a job, as `shiftboss work` does.
const WAIT: Duration = Duration::from_secs(30);

/// How a worker of one server speaks. One value serves one connection.
#[derive(Debug, Clone, Copy)]
pub enum Protocol {
    /// Shiftboss's classic verbs.
    Classic,
    /// Shiftboss's protocol 2: the end of an attempt and the next request in one write.
    Leased,
    /// beanstalkd: `delete` and `reserve` in one write are what `DONE` is to shiftboss.
    Beanstalkd,
}

/// What came of one request.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A job; the end of it asks for the next.
    Job,
    /// There is no work.
    Nothing,
    /// Not what was expected: the measurement is void.
    Fault(String),
}

impl Protocol {
    /// The first request of a connection.
    #[must_use]
    pub fn ask(self) -> Vec<u8> {
        match self {
            Self::Classic => b"READY\n".to_vec(),
            Self::Leased => format!("HELLO {VERSION} bench\n{}\n", ready()).into(),
            Self::Beanstalkd => b"reserve-with-timeout 0\r\n".to_vec(),
        }
    }

    /// Whether `input` holds a whole answer.
    #[must_use]
    pub fn is_whole(self, input: &[u8]) -> bool {
        match self {
            Self::Classic => input.ends_with(b"\n"),
            Self::Leased => last_line(input).is_some_and(|line| {
                // Another line follows these: what the `READY` behind them is answered.
                !matches!(Answer::read(line), Some(Answer::Hello | Answer::Ok))
            }),
            Self::Beanstalkd => {
                input.ends_with(b"TIMED_OUT\r\n") || whole_reservation(input).unwrap_or(false)
            }
        }
    }

    /// Reads a whole answer, and writes the request that ends its job into `next`.
    pub fn end(self, answer: &[u8], next: &mut Vec<u8>) -> Outcome {
        next.clear();
        let line = last_line(answer).unwrap_or_default();
        match self {
            Self::Classic => end_job(Answer::read_classic(line), answer, next),
            // An end that was refused; the `READY` behind it was not.
            Self::Leased if answer.starts_with(b"ERROR ") => fault(answer),
            Self::Leased => end_job(Answer::read(line), answer, next),
            Self::Beanstalkd => end_reservation(answer, next),
        }
    }
}

fn ready() -> Ready {
    Ready { seconds: Wait::of(WAIT), fetchers: Fetchers::All }
}

/// The last line without its end; `None`: it has none yet.
fn last_line(input: &[u8]) -> Option<&[u8]> {
    input.strip_suffix(b"\n")?.rsplit(|byte| *byte == b'\n').next()
}

fn end_job(read: Option<Answer>, answer: &[u8], next: &mut Vec<u8>) -> Outcome {
    let written = match read {
        Some(Answer::Job(Job { attempt: Some(attempt), .. })) => {
            writeln!(next, "DONE {} 0\n{}", attempt.0, ready())
        }
        Some(Answer::Job(Job { key, .. })) => {
            next.extend_from_slice(b"DONE ");
            next.extend_from_slice(&key);
            next.write_all(b" 0\n")
        }
        Some(Answer::NoJobs(_)) => return Outcome::Nothing,
        _ => return fault(answer),
    };
    written.map_or_else(|error| Outcome::Fault(error.to_string()), |()| Outcome::Job)
}

/// Where `RESERVED <id> <bytes>` stands; before it `DELETED` may.
fn reservation(answer: &[u8]) -> Option<&[u8]> {
    answer.windows(9).position(|word| word == b"RESERVED ").map(|at| &answer[at..])
}

/// `None` when there is no reservation at all yet.
fn whole_reservation(input: &[u8]) -> Option<bool> {
    let reserved = reservation(input)?;
    let line_end = reserved.iter().position(|byte| *byte == b'\n')?;
    let bytes = reserved[..line_end].split(|byte| *byte == b' ').nth(2)?;
    let bytes: usize = std::str::from_utf8(bytes).ok()?.trim_end().parse().ok()?;
    Some(reserved.len() >= line_end + 1 + bytes + 2)
}

fn end_reservation(answer: &[u8], next: &mut Vec<u8>) -> Outcome {
    let id = reservation(answer).and_then(|text| text.split(|byte| *byte == b' ').nth(1));
    match id {
        Some(id) => {
            next.extend_from_slice(b"delete ");
            next.extend_from_slice(id);
            next.extend_from_slice(b"\r\nreserve-with-timeout 0\r\n");
            Outcome::Job
        }
        None if answer.ends_with(b"TIMED_OUT\r\n") => Outcome::Nothing,
        None => fault(answer),
    }
}

fn fault(answer: &[u8]) -> Outcome {
    Outcome::Fault(String::from_utf8_lossy(answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Outcome, Protocol};

    #[test]
    fn a_job_is_ended_by_its_key() {
        let mut next = Vec::new();
        assert_eq!(Protocol::Classic.end(b"JOB a/b 1 2\n", &mut next), Outcome::Job);
        assert_eq!(next, b"DONE a/b 0\n");
        assert_eq!(Protocol::Classic.end(b"NOJOBS\n", &mut next), Outcome::Nothing);
        assert!(matches!(Protocol::Classic.end(b"", &mut next), Outcome::Fault(_)));
    }

    #[test]
    fn an_attempt_is_ended_by_its_number() {
        let (greeting, answer) =
            (b"HELLO 2 0.1.0 READY\n".as_slice(), b"OK\nJOB 7 a 1\n".as_slice());
        for length in 0..answer.len() {
            assert!(!Protocol::Leased.is_whole(&answer[..length]), "{length}");
        }
        assert!(Protocol::Leased.is_whole(answer) && !Protocol::Leased.is_whole(greeting));
        let mut next = Vec::new();
        assert_eq!(Protocol::Leased.end(answer, &mut next), Outcome::Job);
        assert_eq!(next, b"DONE 7 0\nREADY 30 fetchers=*\n");
        assert_eq!(Protocol::Leased.end(b"OK\nNOJOBS\n", &mut next), Outcome::Nothing);
        let stale = Protocol::Leased.end(b"ERROR stale x\nJOB 8 b 1\n", &mut next);
        assert!(matches!(stale, Outcome::Fault(_)));
    }

    #[test]
    fn a_reservation_is_whole_with_its_last_byte() {
        let answer = b"DELETED\r\nRESERVED 17 5\r\nabcde\r\n";
        for length in 0..answer.len() {
            assert!(!Protocol::Beanstalkd.is_whole(&answer[..length]), "{length}");
        }
        assert!(Protocol::Beanstalkd.is_whole(answer));
        let mut next = Vec::new();
        assert_eq!(Protocol::Beanstalkd.end(answer, &mut next), Outcome::Job);
        assert_eq!(next, b"delete 17\r\nreserve-with-timeout 0\r\n");
        assert!(Protocol::Beanstalkd.is_whole(b"DELETED\r\nTIMED_OUT\r\n"));
    }
}
