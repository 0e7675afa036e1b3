//! The codec and the grammars of both protocols, fed by the fuzzer. The first byte tells in how many
//! pieces the rest comes, the second whether the connection may opt in.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../check.rs"]
mod check;

fuzz_target!(|data: &[u8]| {
    if let [pieces, may_opt_in, bytes @ ..] = data {
        check::check(bytes, usize::from(*pieces), may_opt_in % 2 == 0);
        check::check_verb(usize::from(*pieces), bytes);
    }
});
