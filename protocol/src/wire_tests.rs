//! The classic protocol, byte by byte (spec 3.3 and 3.4).

use super::*;

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

fn done_of(text: &str, exit_code: i64) -> ClassicRequest {
    ClassicRequest::Done { key: key(text), exit_code }
}

/// The requests of a connection that sent `pieces` and half-closed, and whether a fault ended it.
fn requests(pieces: &[&[u8]]) -> (Vec<ClassicRequest>, bool) {
    let mut codec = LineCodec::new(false, false);
    let mut bytes = BytesMut::new();
    let mut requests = Vec::new();
    for piece in pieces {
        bytes.extend_from_slice(piece);
        loop {
            match codec.decode(&mut bytes) {
                Ok(Some(Line::Classic(request))) => requests.push(request),
                Ok(Some(other)) => panic!("{other:?}"),
                Ok(None) => break,
                Err(_) => return (requests, true),
            }
        }
    }
    loop {
        match codec.decode_eof(&mut bytes) {
            Ok(Some(Line::Classic(request))) => requests.push(request),
            Ok(Some(other)) => panic!("{other:?}"),
            Ok(None) => return (requests, false),
            Err(_) => return (requests, true),
        }
    }
}

/// Everything that the reference accepts is accepted.
#[test]
fn good_lines_are_requests() {
    for (bytes, request) in [
        (&b"READY\n"[..], ClassicRequest::Ready),
        (b"DONE a 0\n", done_of("a", 0)),
        (b"DONE a 0", done_of("a", 0)),
        (b"DONE a 0\r\n", done_of("a", 0)),
        (b"DONE a 0 more words\n", done_of("a", 0)),
        (b"DONE a 0 \n", done_of("a", 0)),
        (b"DONE a -1\n", done_of("a", -1)),
        (b"DONE a +7\n", done_of("a", 7)),
        (b"DONE a 007\n", done_of("a", 7)),
        (b"DONE a 9223372036854775807\n", done_of("a", i64::MAX)),
        (b"DONE a -9223372036854775808\n", done_of("a", i64::MIN)),
        ("DONE é\t0 1\n".as_bytes(), done_of("é\t0", 1)),
    ] {
        assert_eq!(requests(&[bytes]), (vec![request], false), "{}", bytes.escape_ascii());
    }
}

/// Everything else is a fault, and gives no request.
#[test]
fn bad_lines_are_faults() {
    for bytes in [
        &b"READY"[..],
        b"READY\r\n",
        b"READY \n",
        b" READY\n",
        b"ready\n",
        b"\n",
        b"\r\n",
        b"DONE\n",
        b"DONE \n",
        b"DONE a\n",
        b"DONE a \n",
        b"DONE a x\n",
        b"DONE a 1.0\n",
        b"DONE a 0x1\n",
        b"DONE a 1_0\n",
        b"DONE a +\n",
        b"DONE a ++1\n",
        b"DONE a 9223372036854775808\n",
        b"DONE a -9223372036854775809\n",
        b"DONE  a 0\n",
        b"DONE \xff 0\n",
        b"done a 0\n",
        b"HELLO 2 w\n",
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00",
        b"DO",
        "DONE a ٣\n".as_bytes(),
    ] {
        assert_eq!(requests(&[bytes]), (vec![], true), "{}", bytes.escape_ascii());
    }
}

/// Good lines before a fault count, those after it do not; empty input ends without a fault.
#[test]
fn a_fault_ends_the_connection() {
    let (found, fault) = requests(&[b"READY\nDONE a 0\nREADY \nREADY\n"]);
    assert_eq!((found, fault), (vec![ClassicRequest::Ready, done_of("a", 0)], true));
    assert_eq!(requests(&[b""]), (vec![], false));
}

/// A line may have 64 KiB and no more; a longer one is noticed without waiting for its end.
#[test]
fn a_line_has_a_limit() {
    let line = |length: usize| format!("DONE a 0 {}", "x".repeat(length - 9));
    assert_eq!(requests(&[format!("{}\n", line(LINE_MAX_BYTES)).as_bytes()]).0, [done_of("a", 0)]);
    assert!(requests(&[format!("{}\n", line(LINE_MAX_BYTES + 1)).as_bytes()]).1);
    let mut endless = BytesMut::from(line(LINE_MAX_BYTES + 1).as_bytes());
    assert!(matches!(LineCodec::new(false, false).decode(&mut endless), Err(WireError::TooLong)));
}

/// The log shows a faulty line escaped, and not more of it than is useful.
#[test]
fn faults_are_shown_escaped_and_short() {
    let line = [b"\x1b[31m\n".as_slice(), &[b'x'; 200]].concat();
    let shown = classic(&line, true).unwrap_err().to_string();
    assert!(shown.starts_with("not a request: \"\\x1b[31m\\nxxx"), "{shown}");
    assert!(shown.len() < 120);
}
