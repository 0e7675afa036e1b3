//! The fuzzer's seeds, and mutations, as a property test, for who has no fuzzer (`make fuzz`).
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

/// A change to some bytes.
#[derive(Debug, Clone)]
enum Mutation {
    Set(usize, u8),
    Insert(usize, Vec<u8>),
    Remove(usize, usize),
    Double(usize, usize),
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = || 0..400_usize;
    let words = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..8),
        Just(b"\n".to_vec()),
        Just(b"HELLO 2 w\n".to_vec()),
        Just(b"DONE 1 0\nREADY\n".to_vec()),
        Just(b"18446744073709551616".to_vec()),
        Just(vec![b'x'; 70_000]),
    ];
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set(at, byte)),
        (at(), words).prop_map(|(at, bytes)| Mutation::Insert(at, bytes)),
        (at(), 1..20_usize).prop_map(|(at, length)| Mutation::Remove(at, length)),
        (at(), 1..40_usize).prop_map(|(at, length)| Mutation::Double(at, length)),
    ]
}

fn mutate(bytes: &mut Vec<u8>, mutation: &Mutation) {
    let place = |at: usize| at % (bytes.len() + 1);
    match mutation {
        Mutation::Set(at, byte) => {
            let at = place(*at);
            if let Some(there) = bytes.get_mut(at) {
                *there = *byte;
            }
        }
        Mutation::Insert(at, more) => {
            let at = place(*at);
            bytes.splice(at..at, more.iter().copied());
        }
        Mutation::Remove(at, length) => {
            let at = place(*at);
            bytes.drain(at..(at + length).min(bytes.len()));
        }
        Mutation::Double(at, length) => {
            let at = place(*at);
            let again = bytes[at..(at + length).min(bytes.len())].to_vec();
            bytes.splice(at..at, again);
        }
    }
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
        mutations.iter().for_each(|mutation| mutate(&mut bytes, mutation));
        check::check(&bytes, usize::from(pieces), may_opt_in);
    }
}
