//! Protocol 2, however its bytes are cut.

use proptest::prelude::*;

use super::lines;
use crate::wire::LINE_MAX_BYTES;

/// Pieces of requests, good and bad, and noise.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let text = |text: &'static str| Just(text.as_bytes().to_vec());
    prop_oneof![
        text("HELLO 2 w 5\n"),
        text("READY"),
        text("READY 3\n"),
        text("DONE 1 "),
        text("0\n"),
        text("BEAT 1\n"),
        text("RELEASE "),
        text("WHY "),
        text("QUIT\n"),
        text("\n"),
        text(" "),
        text("\r"),
        text("99999999999999999999"),
        prop::collection::vec(any::<u8>(), 0..6),
        (LINE_MAX_BYTES - 3..LINE_MAX_BYTES + 3).prop_map(|length| vec![b'x'; length]),
    ]
}

proptest! {
    /// Wherever the bytes are cut, the lines are the same; no bytes make it panic, and every whole line of
    /// a connection that opted in is one request or one fault.
    #[test]
    fn cuts_make_no_difference(
        opt_in in any::<bool>(),
        pieces in prop::collection::vec(piece(), 0..10),
        cuts in prop::collection::vec(0..200_usize, 0..6),
    ) {
        let mut bytes = if opt_in { b"HELLO 2 w\n".to_vec() } else { Vec::new() };
        bytes.extend(pieces.concat());
        let whole = lines(&[&bytes]);
        let mut rest = &bytes[..];
        let mut parts = Vec::new();
        for cut in cuts {
            let (part, left) = rest.split_at(cut.min(rest.len()));
            parts.push(part);
            rest = left;
        }
        parts.push(rest);
        prop_assert_eq!(&lines(&parts), &whole);
        if opt_in {
            let ends = bytes.iter().filter(|byte| **byte == b'\n').count();
            let unfinished = bytes.iter().rev().take_while(|byte| **byte != b'\n').count();
            // One that is too long is reported before its end.
            prop_assert_eq!(whole.0.len(), ends + usize::from(unfinished > LINE_MAX_BYTES));
        }
    }
}
