//! The contract of a store, kept by one daemon, and by several of one queue.

use proptest::prelude::ProptestConfig;
use shiftboss_actors::testing::conformance;

use super::support::Site;

/// So many random histories as the environment's PROPTEST_CASES says, or few.
fn cases(few: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.map(|text| text.parse().expect("PROPTEST_CASES is a number"));
    ProptestConfig::with_cases(asked.unwrap_or(few))
}

#[test]
#[ignore = "needs a server: make test-postgres"]
fn one_daemon_passes_what_every_store_must() {
    conformance::passes(cases(40), |rules| Site::new(rules, 1));
}

/// Batches go to one daemon after the other; their order is that of the model.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn several_daemons_are_as_one() {
    for daemons in [2, 4] {
        conformance::histories_match(cases(20), |rules| Site::new(rules, daemons));
    }
}
