//! The two protocols that are compared: what is sent, and when an answer is whole.
//!
//! Called by the load generator. Knows no socket.

/// How a worker of one server speaks. One value serves one connection.
#[derive(Debug, Clone, Copy)]
pub enum Protocol {
    /// Shiftboss's classic verbs.
    Shiftboss,
    /// beanstalkd: `delete` and `reserve` in one write are what `DONE` is to shiftboss.
    Beanstalkd,
}

/// What came of one request.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
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
    pub fn ask(self) -> &'static [u8] {
        match self {
            Self::Shiftboss => b"READY\n",
            Self::Beanstalkd => b"reserve-with-timeout 0\r\n",
        }
    }

    /// Whether `input` holds a whole answer.
    #[must_use]
    pub fn is_whole(self, input: &[u8]) -> bool {
        match self {
            Self::Shiftboss => input.ends_with(b"\n"),
            Self::Beanstalkd => {
                input.ends_with(b"TIMED_OUT\r\n") || whole_reservation(input).unwrap_or(false)
            }
        }
    }

    /// Reads a whole answer, and writes the request that ends its job into `next`.
    pub fn end(self, answer: &[u8], next: &mut Vec<u8>) -> Answer {
        next.clear();
        match self {
            Self::Shiftboss => end_job(answer, next),
            Self::Beanstalkd => end_reservation(answer, next),
        }
    }
}

fn end_job(answer: &[u8], next: &mut Vec<u8>) -> Answer {
    let mut words = answer.split(|byte| *byte == b' ');
    match (words.next(), words.next()) {
        (Some(b"JOB"), Some(key)) => {
            next.extend_from_slice(b"DONE ");
            next.extend_from_slice(key);
            next.extend_from_slice(b" 0\n");
            Answer::Job
        }
        (Some(b"NOJOBS\n"), None) => Answer::Nothing,
        _ => fault(answer),
    }
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

fn end_reservation(answer: &[u8], next: &mut Vec<u8>) -> Answer {
    let id = reservation(answer).and_then(|text| text.split(|byte| *byte == b' ').nth(1));
    match id {
        Some(id) => {
            next.extend_from_slice(b"delete ");
            next.extend_from_slice(id);
            next.extend_from_slice(b"\r\nreserve-with-timeout 0\r\n");
            Answer::Job
        }
        None if answer.ends_with(b"TIMED_OUT\r\n") => Answer::Nothing,
        None => fault(answer),
    }
}

fn fault(answer: &[u8]) -> Answer {
    Answer::Fault(String::from_utf8_lossy(answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::{Answer, Protocol};

    #[test]
    fn a_job_is_ended_by_its_key() {
        let mut next = Vec::new();
        assert_eq!(Protocol::Shiftboss.end(b"JOB a/b 1 2\n", &mut next), Answer::Job);
        assert_eq!(next, b"DONE a/b 0\n");
        assert_eq!(Protocol::Shiftboss.end(b"NOJOBS\n", &mut next), Answer::Nothing);
        assert!(matches!(Protocol::Shiftboss.end(b"", &mut next), Answer::Fault(_)));
    }

    #[test]
    fn a_reservation_is_whole_with_its_last_byte() {
        let answer = b"DELETED\r\nRESERVED 17 5\r\nabcde\r\n";
        for length in 0..answer.len() {
            assert!(!Protocol::Beanstalkd.is_whole(&answer[..length]), "{length}");
        }
        assert!(Protocol::Beanstalkd.is_whole(answer));
        let mut next = Vec::new();
        assert_eq!(Protocol::Beanstalkd.end(answer, &mut next), Answer::Job);
        assert_eq!(next, b"delete 17\r\nreserve-with-timeout 0\r\n");
        assert!(Protocol::Beanstalkd.is_whole(b"DELETED\r\nTIMED_OUT\r\n"));
    }
}
