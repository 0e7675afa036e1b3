//! The fuzzer's seeds, and mutations, as a property test, for machines without the fuzzer (`make fuzz`).
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use proptest::prelude::*;

#[path = "../../tests/fuzz/check.rs"]
mod check;

/// All seeds.
fn corpus() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fuzz/seeds/lines");
    let mut paths: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| fs::read(path).unwrap()).collect()
}

/// Bytes that replace others: where, how many, and by which.
fn mutation() -> impl Strategy<Value = (usize, usize, Vec<u8>)> {
    let words = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8),
        Just(b"\n".to_vec()),
        Just(b"HELLO 2 w\n".to_vec()),
        Just(b"DONE 1 0\nREADY\n".to_vec()),
        Just(b"18446744073709551616".to_vec()),
        Just(vec![b'x'; 70_000]),
    ];
    (0..400_usize, 0..20_usize, words)
}

proptest! {
    /// Each verb, with what its arguments may look like.
    #[test]
    fn verbs(which in any::<usize>(), arguments in "[a-z-]?[0-9]{0,3}( [0-9-]{1,9}| [a-z ]{1,9}){0,2}") {
        check::check_verb(which, arguments.as_bytes());
    }

    /// Inputs of the corpus, changed, in pieces.
    #[test]
    fn mutated_inputs(
        which in any::<prop::sample::Index>(),
        mutations in prop::collection::vec(mutation(), 0..8),
        pieces in any::<u8>(),
        may_opt_in in any::<bool>(),
    ) {
        let corpus = corpus();
        let mut bytes = which.get(&corpus).get(2..).unwrap_or_default().to_vec();
        for (at, length, words) in mutations {
            let at = at % (bytes.len() + 1);
            let end = (at + length).min(bytes.len());
            bytes.splice(at..end, words);
        }
        check::check(&bytes, usize::from(pieces), may_opt_in);
    }
}
