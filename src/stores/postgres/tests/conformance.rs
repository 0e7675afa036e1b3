//! The contract of a store, kept by one daemon, and by several of one queue.

use shiftboss_actors::testing::conformance;

use super::support::{Site, cases};

#[test]
#[ignore = "needs a server: make test-postgres"]
fn one_daemon_passes_what_every_store_must() {
    conformance::passes(cases(30), |rules| Site::new(rules, 1));
}

/// Batches go to one daemon after the other; their order is that of the model.
#[test]
#[ignore = "needs a server: make test-postgres"]
fn several_daemons_are_as_one() {
    for daemons in [2, 4] {
        conformance::histories_match(cases(10), |rules| Site::new(rules, daemons));
    }
}
