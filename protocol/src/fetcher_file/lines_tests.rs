//! The lines of fetcher files, at every boundary.

use proptest::prelude::*;

use super::*;
use crate::model::{KEY_MAX_BYTES, Key};

/// All lines of a complete file, fed in one piece.
fn lines_of(bytes: &[u8]) -> Vec<Line> {
    lines_in_pieces(&[bytes])
}

fn lines_in_pieces(pieces: &[&[u8]]) -> Vec<Line> {
    let mut reader = LineReader::new(true, 0);
    let mut lines = Vec::new();
    for piece in pieces {
        reader.feed(piece, &mut lines);
    }
    reader.finish(&mut lines);
    lines
}

fn row(key: &str, payload: &str) -> Line {
    Line::Row(Row { key: Key::new(key).unwrap(), payload: payload.to_owned() })
}

fn skipped(number: u64, reason: SkipReason) -> Line {
    Line::Skipped { number, reason }
}

/// A file with every kind of line.
const MIXED: &[u8] =
    b"\xef\xbb\xbfalpha  0 1\nbravo 1 2\r\ncharlie x\rd\xc3\xa9lta \xe2\x82\xac 2\n\
    \n# x\n\xff bad\none\n\xc2\xa0echo\ty z\x1c\r\r\n  \t \ntrailing \n last 1";

/// Lines are split, stripped and numbered as in spec 4.
#[test]
fn lines_are_those_of_the_spec() {
    let expected = [
        row("alpha", " 0 1"),
        row("bravo", "1 2"),
        row("charlie", "x"),
        row("délta", "€ 2"),
        skipped(5, SkipReason::EMPTY),
        row("#", "x"),
        skipped(7, SkipReason::NOT_UTF8),
        skipped(8, SkipReason::ONE_WORD),
        row("echo\ty", "z"),
        skipped(10, SkipReason::EMPTY),
        skipped(11, SkipReason::EMPTY),
        skipped(12, SkipReason::ONE_WORD),
        row("last", "1"),
    ];
    assert_eq!(lines_of(MIXED), expected);
}

/// A return ends the last line even if nothing follows it, and even if the line is empty.
#[test]
fn a_return_ends_the_last_line() {
    assert_eq!(lines_of(b"a 1\r"), [row("a", "1")]);
    assert_eq!(lines_of(b"a 1\n\r"), [row("a", "1"), skipped(2, SkipReason::EMPTY)]);
}

/// White space of Python's `str.strip` is removed at both ends, and only there.
#[test]
fn python_space_is_stripped() {
    for space in ["\u{85}", "\u{a0}", "\u{3000}", "\u{1c}", "\u{1f}", "\t", "\u{b}", "\u{2028}"] {
        let line = format!("{space}key{space}k pay{space}load{space}\n");
        let expected = row(&format!("key{space}k"), &format!("pay{space}load"));
        assert_eq!(lines_of(line.as_bytes()), [expected], "{space:?}");
    }
    // A zero-width space is not white space.
    assert_eq!(lines_of("\u{200b}a b\n".as_bytes()), [row("\u{200b}a", "b")]);
}

/// A byte order mark belongs to the first line alone.
#[test]
fn a_byte_order_mark_is_dropped_once() {
    assert_eq!(
        lines_of("\u{feff}a 1\n\u{feff}b 2\n".as_bytes()),
        [row("a", "1"), row("\u{feff}b", "2")]
    );
}

/// Limits hold to the byte, and the line after a line that is too long is read.
#[test]
fn limits_hold() {
    let key = "k".repeat(KEY_MAX_BYTES);
    assert_eq!(lines_of(format!("{key} 1").as_bytes()), [row(&key, "1")]);
    let longer = format!("{key}k 1\na 1");
    assert_eq!(lines_of(longer.as_bytes()), [skipped(1, SkipReason::KEY_TOO_LONG), row("a", "1")]);

    let payload = "p".repeat(LINE_MAX_BYTES - 2);
    assert_eq!(lines_of(format!("k {payload}\n").as_bytes()), [row("k", &payload)]);
    let longer = format!("k {payload}p\na 1");
    assert_eq!(lines_of(longer.as_bytes()), [skipped(1, SkipReason::LINE_TOO_LONG), row("a", "1")]);
}

/// A line of 100 MB is skipped in bounded memory.
#[test]
fn an_endless_line_takes_no_memory() {
    let mut reader = LineReader::new(true, 0);
    let mut lines = Vec::new();
    let chunk = vec![b'x'; 64 * 1024];
    for _ in 0..1600 {
        reader.feed(&chunk, &mut lines);
        assert!(reader.partial.capacity() <= 2 * LINE_MAX_BYTES);
    }
    reader.feed(b"\na 1\n", &mut lines);
    assert_eq!(lines, [skipped(1, SkipReason::LINE_TOO_LONG), row("a", "1")]);
    assert_eq!(reader.consumed(), 1600 * 64 * 1024 + 5);
}

/// An unfinished last line waits until its end comes, or the file is complete.
#[test]
fn an_unfinished_line_waits() {
    let mut reader = LineReader::new(true, 0);
    let mut lines = Vec::new();
    reader.feed(b"a 1\nb", &mut lines);
    assert_eq!((lines.len(), reader.consumed()), (1, 4));
    reader.feed(b" 2", &mut lines);
    assert_eq!((lines.len(), reader.consumed()), (1, 4));
    reader.finish(&mut lines);
    assert_eq!((lines[1].clone(), reader.consumed()), (row("b", "2"), 7));
    reader.finish(&mut lines);
    assert_eq!(lines.len(), 2);
}

/// Bytes that line ends and multi-byte characters are likely in.
fn file() -> impl Strategy<Value = Vec<u8>> {
    const PIECES: [&[u8]; 11] = [
        b"\n",
        b"\r",
        b"\r\n",
        b" ",
        b"a",
        b"key 1",
        b"\xe2\x82",
        b"\xac",
        b"\xef\xbb\xbf",
        b"\0",
        b"\x1c",
    ];
    let piece = prop::sample::select(&PIECES[..]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// Any cuts give the same lines.
    #[test]
    fn cuts_make_no_difference(bytes in file(), cuts in prop::collection::vec(0..100_usize, 0..5)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.push(0);
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect();
        prop_assert_eq!(lines_in_pieces(&pieces), lines_of(&bytes));
    }

    /// A new reader that begins where another stopped goes on with the same lines.
    #[test]
    fn reading_resumes_where_it_stopped(bytes in file(), cut in 0..100_usize) {
        let mut first = LineReader::new(true, 0);
        let mut lines = Vec::new();
        first.feed(&bytes[..cut.min(bytes.len())], &mut lines);
        let consumed = usize::try_from(first.consumed()).unwrap();
        let mut second = LineReader::new(consumed == 0, first.lines());
        second.feed(&bytes[consumed..], &mut lines);
        second.finish(&mut lines);
        prop_assert_eq!(lines, lines_of(&bytes));
    }
}
