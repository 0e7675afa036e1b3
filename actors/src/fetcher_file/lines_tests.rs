//! What [`LineReader`] must do with the bytes of spec 4, in whatever pieces they come.

use proptest::prelude::*;

use super::{LINE_MAX_BYTES, Line, LineReader, SkipReason};
use crate::model::{KEY_MAX_BYTES, Key, Row};

fn row(key: &str, payload: &str) -> Line {
    Line::Row(Row {
        key: Key::new(key).unwrap(),
        payload: payload.to_owned(),
    })
}

fn skipped(number: u64, reason: SkipReason) -> Line {
    Line::Skipped { number, reason }
}

/// The lines of a complete file, read in the given pieces.
fn read<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<Line> {
    let mut reader = LineReader::new(true, 0);
    let mut out = Vec::new();
    for piece in pieces {
        reader.feed(piece, &mut out);
    }
    reader.finish(&mut out);
    out
}

fn read_whole(bytes: &[u8]) -> Vec<Line> {
    read([bytes])
}

/// What is said slowly and plainly: the lines of a complete file as spec 4 has them.
fn naive(bytes: &[u8]) -> Vec<Line> {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    let mut index = 0;
    while index < bytes.len() {
        match bytes[index] {
            b'\r' | b'\n' => {
                index += usize::from(bytes[index..].starts_with(b"\r\n"));
                lines.push(Vec::new());
            }
            other => lines.last_mut().unwrap().push(other),
        }
        index += 1;
    }
    if lines.last().unwrap().is_empty() {
        lines.pop();
    }
    let numbered = lines.iter().enumerate();
    numbered
        .map(|(before, line)| naive_line(before as u64 + 1, line))
        .collect()
}

fn naive_line(number: u64, line: &[u8]) -> Line {
    let Ok(text) = std::str::from_utf8(line) else {
        return skipped(number, SkipReason::NotUtf8);
    };
    let text = text.trim_matches(|c: char| {
        "\t\u{b}\u{c}\u{1c}\u{1d}\u{1e}\u{1f} \u{85}\u{a0}\u{2003}\u{2028}\u{3000}".contains(c)
    });
    match text.split_once(' ') {
        Some((key, payload)) => row(key, payload),
        None if text.is_empty() => skipped(number, SkipReason::Empty),
        None => skipped(number, SkipReason::OneWord),
    }
}

/// Text with everything in it that matters at a boundary.
const MIXED: &[u8] = "\u{feff}alpha 0 1\nbravo  8.06.16 https://é.example\r\n\r\rcharlie x\r\
      one\n\u{3000}délta\u{2003}e f\u{a0}\n\u{fffd}\n# x\r\n\n\nzulu last 日本"
    .as_bytes();

/// Each kind of line, by itself, in a complete file.
#[test]
fn one_line() {
    use SkipReason::{Empty, NotUtf8, OneWord};
    let table: [(&[u8], Line); 26] = [
        (b"alpha 0 1\n", row("alpha", "0 1")),
        (b"alpha 0 1", row("alpha", "0 1")),
        (b"alpha 0 1\r", row("alpha", "0 1")),
        (b"alpha 0 1\r\n", row("alpha", "0 1")),
        (b"alpha  0 1\n", row("alpha", " 0 1")),
        (b"alpha   \t0\n", row("alpha", "  \t0")),
        (b" \t alpha 0 1 \t \n", row("alpha", "0 1")),
        (b"# x\n", row("#", "x")),
        (b"a\tb c\n", row("a\tb", "c")),
        (b"a\0b c\0\n", row("a\0b", "c\0")),
        (b"\xef\xbb\xbfalpha 0\n", row("alpha", "0")),
        (b"\xef\xbb\xbf alpha 0\n", row("alpha", "0")),
        ("\u{85}alpha 0\u{85}\n".as_bytes(), row("alpha", "0")),
        ("\u{a0}alpha 0\u{3000}\n".as_bytes(), row("alpha", "0")),
        (b"\x1calpha 0\x1f\x1d\x1e\n", row("alpha", "0")),
        (
            "\u{2028}alpha\u{a0}b 0\u{1680}\n".as_bytes(),
            row("alpha\u{a0}b", "0"),
        ),
        ("\u{200b}alpha 0\n".as_bytes(), row("\u{200b}alpha", "0")),
        (b"\n", skipped(1, Empty)),
        (b"\r", skipped(1, Empty)),
        (b"\r\n", skipped(1, Empty)),
        (b" \t\x1c\n", skipped(1, Empty)),
        (b"alpha\n", skipped(1, OneWord)),
        (b"alpha \n", skipped(1, OneWord)),
        (b"alpha\tb\n", skipped(1, OneWord)),
        (b"alpha \xff\n", skipped(1, NotUtf8)),
        (b"alpha \xe6\x97\n", skipped(1, NotUtf8)),
    ];
    for (bytes, line) in table {
        assert_eq!(read_whole(bytes), [line], "{}", bytes.escape_ascii());
    }
}

/// A file without a byte has no line, nor has a byte order mark alone.
#[test]
fn no_line() {
    assert_eq!(read_whole(b""), []);
    assert_eq!(read_whole(b"\xef\xbb\xbf"), []);
}

/// Only the very start of a file loses a byte order mark.
#[test]
fn a_byte_order_mark_elsewhere_is_text() {
    let lines = read_whole("a b\n\u{feff}c d\n".as_bytes());
    assert_eq!(lines, [row("a", "b"), row("\u{feff}c", "d")]);
    let mut out = Vec::new();
    LineReader::new(false, 7).feed("\u{feff}c d\n".as_bytes(), &mut out);
    assert_eq!(out, [row("\u{feff}c", "d")]);
}

/// A faulty line is skipped under its number, counted on from where the reader began.
#[test]
fn line_numbers() {
    let mut reader = LineReader::new(false, 40);
    let mut out = Vec::new();
    reader.feed(b"a b\r\n\xff x\rone\n\nc d\n", &mut out);
    let expected = [
        row("a", "b"),
        skipped(42, SkipReason::NotUtf8),
        skipped(43, SkipReason::OneWord),
        skipped(44, SkipReason::Empty),
        row("c", "d"),
    ];
    assert_eq!(out, expected);
    assert_eq!(reader.lines(), 45);
}

/// An unfinished line waits, also one whose `\r` may still get its `\n`.
#[test]
fn unfinished_lines_wait() {
    let mut reader = LineReader::new(true, 0);
    let mut out = Vec::new();
    reader.feed(b"a b\nc d", &mut out);
    assert_eq!((out.len(), reader.consumed()), (1, 4));
    reader.feed(b"\r", &mut out);
    assert_eq!((out.len(), reader.consumed()), (1, 4));
    reader.feed(b"", &mut out);
    reader.feed(b"\n", &mut out);
    assert_eq!((out.len(), reader.consumed()), (2, 9));
    reader.feed(b"\r", &mut out);
    reader.feed(b"e f\n", &mut out);
    assert_eq!((out.len(), reader.consumed()), (4, 14));
    assert_eq!(out[2..], [skipped(3, SkipReason::Empty), row("e", "f")]);
}

/// A file cut in two at any byte gives the same lines as in one piece.
#[test]
fn any_cut_gives_the_same_lines() {
    let whole = read_whole(MIXED);
    assert_eq!(whole, naive(MIXED));
    assert_eq!(whole.len(), 12);
    for cut in 0..=MIXED.len() {
        let (head, tail) = MIXED.split_at(cut);
        assert_eq!(read([head, tail]), whole, "cut at {cut}");
    }
    assert_eq!(read(MIXED.chunks(1)), whole);
}

/// The limits are inclusive: a key of 4 KiB and a line of 1 MiB are rows.
#[test]
fn limits() {
    let key = "k".repeat(KEY_MAX_BYTES);
    assert_eq!(
        read_whole(format!("{key} p\n").as_bytes()),
        [row(&key, "p")]
    );
    let long = read_whole(format!("{key}k p\na b\n").as_bytes());
    assert_eq!(long, [skipped(1, SkipReason::KeyTooLong), row("a", "b")]);
    let payload = "p".repeat(LINE_MAX_BYTES - 2);
    assert_eq!(
        read_whole(format!("k {payload}\r\n").as_bytes()),
        [row("k", &payload)]
    );
    let lines = format!("k {payload}p\r\na b");
    let expected = [skipped(1, SkipReason::LineTooLong), row("a", "b")];
    assert_eq!(read_whole(lines.as_bytes()), expected);
    assert_eq!(read(lines.as_bytes().chunks(1000)), expected);
}

/// A line of 10 MB is skipped without being kept, and what follows is read.
#[test]
fn a_huge_line_takes_bounded_memory() {
    let mut reader = LineReader::new(true, 0);
    let mut out = Vec::new();
    let piece = vec![b'x'; 64 * 1024];
    for _ in 0..160 {
        reader.feed(&piece, &mut out);
        assert!(reader.carry_capacity() <= 2 * LINE_MAX_BYTES);
    }
    assert_eq!(
        (out.len(), reader.consumed(), reader.carry_capacity()),
        (0, 0, 0)
    );
    reader.feed(b"\r\na b\n", &mut out);
    assert_eq!(out, [skipped(1, SkipReason::LineTooLong), row("a", "b")]);
    assert_eq!(reader.consumed(), 160 * 64 * 1024 + 6);
}

/// Bytes that are rich in what the reader minds.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(&b"\n"[..]),
        3 => Just(&b"\r"[..]),
        2 => Just(&b"\r\n"[..]),
        4 => Just(&b" "[..]),
        4 => Just(&b"a"[..]),
        2 => Just("日".as_bytes()),
        1 => Just("\u{feff}".as_bytes()),
        1 => Just("\u{85}".as_bytes()),
        1 => Just(&b"\xe6"[..]),
        1 => Just(&b"\x1c"[..]),
    ];
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

/// Cuts `bytes` at the given places (each taken modulo the length).
fn cut<'a>(bytes: &'a [u8], places: &[usize]) -> Vec<&'a [u8]> {
    let mut places: Vec<usize> = places
        .iter()
        .map(|place| place % (bytes.len() + 1))
        .collect();
    places.extend([0, bytes.len()]);
    places.sort_unstable();
    places
        .windows(2)
        .map(|ends| &bytes[ends[0]..ends[1]])
        .collect()
}

proptest! {
    /// Any bytes in any pieces give what the plain reading gives.
    #[test]
    fn pieces_do_not_matter(bytes in bytes(), places in prop::collection::vec(any::<usize>(), 0..6)) {
        prop_assert_eq!(read(cut(&bytes, &places)), naive(&bytes));
    }

    /// Stopping anywhere and going on from `consumed` with a new reader loses and doubles nothing.
    #[test]
    fn a_restart_goes_on(bytes in bytes(), places in prop::collection::vec(any::<usize>(), 1..5)) {
        let pieces = cut(&bytes, &places);
        let mut out = Vec::new();
        let (mut offset, mut lines, mut fed) = (0, 0, 0);
        for piece in pieces {
            fed += piece.len();
            let mut reader = LineReader::new(offset == 0, lines);
            reader.feed(&bytes[offset..fed], &mut out);
            offset += usize::try_from(reader.consumed()).unwrap();
            lines = reader.lines();
            prop_assert_eq!(lines, out.len() as u64);
        }
        let mut reader = LineReader::new(offset == 0, lines);
        reader.feed(&bytes[offset..], &mut out);
        reader.finish(&mut out);
        prop_assert_eq!(offset as u64 + reader.consumed(), bytes.len() as u64);
        prop_assert_eq!(out, naive(&bytes));
    }
}
