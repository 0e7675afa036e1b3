//! The worker protocol, classic form (spec 3): requests in, answers out, one line each.
//!
//! A connection reads through [`RequestCodec`] and writes [`Answer`]s. The codec decides what
//! is a request and what is a fault; it does not close, answer or log. A classic peer is never
//! told of a fault: the connection is closed in silence.

use std::io;

use bytes::{Buf, BufMut, BytesMut};
use memchr::memchr;
use thiserror::Error;
use tokio_util::codec::Decoder;

use crate::model::{Job, Key, KeyError};

/// Longest request line in bytes, its `\n` not counted (spec 3.4).
pub const LINE_MAX_BYTES: usize = 64 * 1024;

/// How much of an offending line an error shows, in bytes.
const SHOWN_MAX_BYTES: usize = 80;

/// What a worker asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// `READY`: a job, please.
    Ready,
    /// `DONE <key> <exit_code>`: that job has ended; the next one, please.
    Done {
        /// What the job was about. Nothing says that it was ever handed out.
        key: Key,
        /// How it ended.
        exit_code: i64,
    },
}

/// What a worker is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// `JOB <key> <payload>`.
    Job(Job),
    /// `NOJOBS`: ask again later.
    NoJobs,
}

impl Answer {
    /// Appends the answer's line to `buffer`.
    pub fn encode(&self, buffer: &mut BytesMut) {
        match self {
            Self::NoJobs => buffer.put_slice(b"NOJOBS\n"),
            Self::Job(Job { key, payload }) => {
                let parts = ["JOB ", key.as_str(), " ", payload, "\n"];
                buffer.reserve(parts.iter().map(|part| part.len()).sum());
                parts
                    .iter()
                    .for_each(|part| buffer.put_slice(part.as_bytes()));
            }
        }
    }
}

/// What is wrong with a line (spec 3.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
pub enum Fault {
    /// Neither `READY`, to the byte, nor `DONE` and words.
    #[error("neither READY nor DONE")]
    Unknown,
    /// The input ended before the line did.
    #[error("the input ended before the line's newline")]
    Unfinished,
    /// `DONE` without a key, or with an empty one (two spaces).
    #[error("DONE without a key")]
    NoKey,
    /// `DONE` and a key, and no more.
    #[error("DONE without an exit code")]
    NoExitCode,
    /// The third word is no decimal integer of 64 bits.
    #[error("the exit code is not an integer of 64 bits")]
    BadExitCode,
    /// Bytes that are no text.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// More than [`LINE_MAX_BYTES`].
    #[error("the line is longer than {LINE_MAX_BYTES} bytes")]
    TooLong,
}

/// Why a connection's input ends here.
#[derive(Debug, Error)]
pub enum WireError {
    /// The peer sent what is no request.
    #[error("{fault}: \"{shown}\"")]
    Fault {
        /// What is wrong.
        fault: Fault,
        /// The head of the line, printable.
        shown: String,
    },
    /// The socket failed.
    #[error("the socket cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// Cuts a connection's input into requests. After the first fault it gives nothing more, and
/// keeps nothing more.
#[derive(Debug, Default)]
pub struct RequestCodec {
    /// So many bytes at the front of the buffer hold no line end.
    searched: usize,
    failed: bool,
}

impl Decoder for RequestCodec {
    type Item = Request;
    type Error = WireError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Request>, WireError> {
        if self.failed {
            buffer.clear();
            return Ok(None);
        }
        let end = memchr(b'\n', &buffer[self.searched..]).map(|end| self.searched + end);
        if end.unwrap_or(buffer.len()) > LINE_MAX_BYTES {
            return Err(self.fail(Fault::TooLong, buffer));
        }
        let Some(end) = end else {
            self.searched = buffer.len();
            return Ok(None);
        };
        self.searched = 0;
        let line = buffer.split_to(end);
        buffer.advance(1);
        parse(&line)
            .map(Some)
            .map_err(|fault| self.fail(fault, &line))
    }

    /// At the end of input an unfinished `DONE` counts, an unfinished `READY` does not (spec 3.3,
    /// 3.4): that is how the stock workers have always been answered.
    fn decode_eof(&mut self, buffer: &mut BytesMut) -> Result<Option<Request>, WireError> {
        if let Some(request) = self.decode(buffer)? {
            return Ok(Some(request));
        }
        if buffer.is_empty() {
            return Ok(None);
        }
        let line = buffer.split();
        self.searched = 0;
        let fault = match parse(&line) {
            Ok(request) if line != b"READY"[..] => return Ok(Some(request)),
            Ok(_) | Err(Fault::Unknown) => Fault::Unfinished,
            Err(fault) => fault,
        };
        Err(self.fail(fault, &line))
    }
}

impl RequestCodec {
    /// Ends decoding for good.
    fn fail(&mut self, fault: Fault, line: &[u8]) -> WireError {
        self.failed = true;
        WireError::Fault {
            fault,
            shown: show(line),
        }
    }
}

/// Reads one line without its `\n`.
fn parse(line: &[u8]) -> Result<Request, Fault> {
    let line = str::from_utf8(line).map_err(|_| Fault::NotUtf8)?;
    if line == "READY" {
        return Ok(Request::Ready);
    }
    let mut words = line.strip_suffix('\r').unwrap_or(line).split(' ');
    if words.next() != Some("DONE") {
        return Err(Fault::Unknown);
    }
    let key = words.next().ok_or(Fault::NoKey)?;
    let exit_code = words.next().map(parse_exit_code);
    match (Key::new(key), exit_code) {
        (Err(KeyError::Empty), _) => Err(Fault::NoKey),
        (_, None) => Err(Fault::NoExitCode),
        (_, Some(None)) => Err(Fault::BadExitCode),
        (Ok(key), Some(Some(exit_code))) => Ok(Request::Done { key, exit_code }),
        // No queue can hold this key, and the end of an unknown one changes nothing but asks
        // for the next job (spec 2).
        (Err(KeyError::TooLong(_) | KeyError::Separator), Some(Some(_))) => Ok(Request::Ready),
    }
}

/// Reads `[+-]?[0-9]+` within 64 bits; that is just what [`i64`]'s own parser takes.
fn parse_exit_code(word: &str) -> Option<i64> {
    word.parse().ok()
}

/// The head of a line as printable ASCII, within [`SHOWN_MAX_BYTES`].
fn show(line: &[u8]) -> String {
    // One byte more than fits, so that the cut is noticed.
    let head = &line[..line.len().min(SHOWN_MAX_BYTES + 1)];
    let mut shown = head.escape_ascii().to_string();
    if shown.len() > SHOWN_MAX_BYTES {
        shown.truncate(SHOWN_MAX_BYTES - 3);
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What one connection's input gives: requests, and the fault that ended it.
    #[derive(Debug, PartialEq)]
    struct Heard(Vec<Request>, Option<Fault>);

    fn done(key: &str, exit_code: i64) -> Request {
        Request::Done {
            key: Key::new(key).unwrap(),
            exit_code,
        }
    }

    /// Takes all the codec gives of the buffer; stops at a fault, as a framed reader does.
    fn drain(codec: &mut RequestCodec, buffer: &mut BytesMut, eof: bool, heard: &mut Heard) {
        loop {
            let next = if eof {
                codec.decode_eof(buffer)
            } else {
                codec.decode(buffer)
            };
            match next {
                Ok(Some(request)) => heard.0.push(request),
                Ok(None) => return,
                Err(WireError::Fault { fault, .. }) => {
                    assert_eq!(heard.1.replace(fault), None, "a second fault");
                }
                Err(WireError::Io(error)) => panic!("{error}"),
            }
        }
    }

    /// Feeds the pieces one after the other, then the end of input.
    fn hear<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Heard {
        let (mut codec, mut buffer) = (RequestCodec::default(), BytesMut::new());
        let mut heard = Heard(Vec::new(), None);
        for piece in pieces {
            buffer.extend_from_slice(piece);
            drain(&mut codec, &mut buffer, false, &mut heard);
            assert!(
                buffer.len() <= LINE_MAX_BYTES,
                "more kept than a line may have"
            );
        }
        drain(&mut codec, &mut buffer, true, &mut heard);
        assert!(buffer.is_empty());
        heard
    }

    /// Every form that spec 3.3 accepts.
    #[test]
    fn accepted() {
        use Request::Ready;
        let table: [(&[u8], Vec<Request>); 17] = [
            (b"", vec![]),
            (b"READY\n", vec![Ready]),
            (
                b"READY\nREADY\nDONE a 1\n",
                vec![Ready, Ready, done("a", 1)],
            ),
            (b"DONE a 0\n", vec![done("a", 0)]),
            (b"DONE a 0", vec![done("a", 0)]),
            (b"READY\nDONE a 0", vec![Ready, done("a", 0)]),
            (b"DONE a 0\r\n", vec![done("a", 0)]),
            (b"DONE a 0\r", vec![done("a", 0)]),
            (b"DONE a 0 more words\n", vec![done("a", 0)]),
            (b"DONE a 0 more words", vec![done("a", 0)]),
            (b"DONE a 0 \n", vec![done("a", 0)]),
            (b"DONE a +3\n", vec![done("a", 3)]),
            (b"DONE a -3\n", vec![done("a", -3)]),
            (b"DONE a 007\n", vec![done("a", 7)]),
            (b"DONE a 9223372036854775807\n", vec![done("a", i64::MAX)]),
            (b"DONE a -9223372036854775808\n", vec![done("a", i64::MIN)]),
            ("DONE é#\t\0 1\n".as_bytes(), vec![done("é#\t\0", 1)]),
        ];
        for (bytes, requests) in table {
            assert_eq!(
                hear([bytes]),
                Heard(requests, None),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    /// Every form that spec 3.4 closes on.
    #[test]
    fn faults() {
        let table: [(&[u8], Fault); 28] = [
            (b"READY", Fault::Unfinished),
            (b"REA", Fault::Unfinished),
            (b"READY\r\n", Fault::Unknown),
            (b"READY \n", Fault::Unknown),
            (b" READY\n", Fault::Unknown),
            (b"ready\n", Fault::Unknown),
            (b"\n", Fault::Unknown),
            (b"\r\n", Fault::Unknown),
            (b"HELLO\n", Fault::Unknown),
            (b"done a 0\n", Fault::Unknown),
            (b"DONEa 0\n", Fault::Unknown),
            (b"DONE\ta\t0\n", Fault::Unknown),
            (b"DONE\n", Fault::NoKey),
            (b"DONE\r\n", Fault::NoKey),
            (b"DONE \n", Fault::NoKey),
            (b"DONE  a 0\n", Fault::NoKey),
            (b"DONE  0\n", Fault::NoKey),
            (b"DONE a\n", Fault::NoExitCode),
            (b"DONE a\r\n", Fault::NoExitCode),
            (b"DONE a", Fault::NoExitCode),
            (b"DONE a  0\n", Fault::BadExitCode),
            (b"DONE a x\n", Fault::BadExitCode),
            (b"DONE a +\n", Fault::BadExitCode),
            (b"DONE a 1_0\n", Fault::BadExitCode),
            ("DONE a \u{663}\n".as_bytes(), Fault::BadExitCode),
            (b"DONE a 9223372036854775808\n", Fault::BadExitCode),
            (b"DONE a -9223372036854775809\n", Fault::BadExitCode),
            (b"DONE a\xff 0\n", Fault::NotUtf8),
        ];
        for (bytes, fault) in table {
            assert_eq!(
                hear([bytes]),
                Heard(vec![], Some(fault)),
                "{}",
                bytes.escape_ascii()
            );
        }
    }

    /// Good lines before a faulty one are requests; what follows it is dropped.
    #[test]
    fn a_fault_ends_it() {
        let heard = hear([
            &b"READY\nDONE a 1\nwhat\nREADY\n"[..],
            b"READY\n",
            b"DONE b 0",
        ]);
        assert_eq!(
            heard,
            Heard(vec![Request::Ready, done("a", 1)], Some(Fault::Unknown))
        );
    }

    /// A line of 64 KiB is read, a longer one is a fault before its end is seen.
    #[test]
    fn the_longest_line() {
        let line = format!("DONE a 0 {}", "x".repeat(LINE_MAX_BYTES - 9));
        let with_end = format!("{line}\n");
        assert_eq!(hear([with_end.as_bytes()]), Heard(vec![done("a", 0)], None));
        let longer = format!("{line}x");
        for tail in ["", "\n", "\nREADY\n"] {
            let bytes = format!("{longer}{tail}");
            assert_eq!(
                hear([bytes.as_bytes()]),
                Heard(vec![], Some(Fault::TooLong))
            );
            let heard = hear(bytes.as_bytes().chunks(1000));
            assert_eq!(heard, Heard(vec![], Some(Fault::TooLong)));
        }
    }

    /// The end of a job that no queue can hold changes nothing but asks for the next.
    #[test]
    fn an_impossible_key_is_an_unknown_one() {
        let line = format!("DONE {} 0\nDONE a\rb 0\nREADY\n", "k".repeat(5000));
        assert_eq!(
            hear([line.as_bytes()]),
            Heard(vec![Request::Ready; 3], None)
        );
        assert_eq!(
            hear([&b"DONE a\rb 0"[..]]),
            Heard(vec![Request::Ready], None)
        );
        assert_eq!(
            hear([&b"DONE a\rb x\n"[..]]),
            Heard(vec![], Some(Fault::BadExitCode))
        );
    }

    /// The error shows the head of the line, printable and within 80 bytes.
    #[test]
    fn an_error_shows_the_line() {
        let message = |bytes: &[u8]| {
            let mut buffer = BytesMut::from(bytes);
            RequestCodec::default()
                .decode(&mut buffer)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            message(b"he\"y\x1b\xff\n"),
            r#"the line is not UTF-8: "he\"y\x1b\xff""#
        );
        let fits = "x".repeat(80);
        assert_eq!(
            message(format!("{fits}\n").as_bytes()),
            format!("{}: \"{fits}\"", Fault::Unknown)
        );
        let long = message(format!("{fits}x\n").as_bytes());
        assert_eq!(
            long,
            format!("{}: \"{}...\"", Fault::Unknown, "x".repeat(77))
        );
        let long = message(&[0xff; LINE_MAX_BYTES + 1]);
        assert!(long.len() < 140 && long.ends_with("...\""), "{long}");
    }

    /// Answers are the two lines of spec 3, with the payload byte for byte.
    #[test]
    fn answers() {
        let mut buffer = BytesMut::new();
        Answer::NoJobs.encode(&mut buffer);
        let job = Job {
            key: Key::new("alpha").unwrap(),
            payload: " 0 1 é".to_owned(),
        };
        Answer::Job(job).encode(&mut buffer);
        assert_eq!(buffer, "NOJOBS\nJOB alpha  0 1 é\n".as_bytes());
    }

    /// Input in which most lines are requests or nearly so.
    fn input() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            6 => Just(&b"\n"[..]),
            4 => Just(&b"READY"[..]),
            4 => Just(&b"DONE a 0"[..]),
            1 => Just(&b"DONE "[..]),
            1 => Just(&b" "[..]),
            1 => Just(&b"\r"[..]),
            1 => Just(&b"-12"[..]),
            1 => Just("é".as_bytes()),
            1 => Just(&b"\xc3"[..]),
        ];
        prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        /// However the input is cut, the requests and the fault are the same.
        #[test]
        fn cuts_do_not_matter(bytes in input()) {
            let whole = hear([&bytes[..]]);
            prop_assert_eq!(&hear(bytes.chunks(1)), &whole);
            for cut in 0..=bytes.len() {
                let (head, tail) = bytes.split_at(cut);
                prop_assert_eq!(&hear([head, tail]), &whole, "cut at {}", cut);
            }
        }

        /// No bytes make it panic or keep more than a line.
        #[test]
        fn any_bytes(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10)) {
            hear(pieces.iter().map(Vec::as_slice));
        }
    }
}
