//! The contract of a store.

use proptest::prelude::ProptestConfig;
use shiftboss_actors::testing::conformance;

use super::support::Site;

#[test]
#[ignore = "needs a server: make test-postgres"]
fn passes_what_every_store_must() {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let cases = asked.map_or(30, |text| text.parse().expect("PROPTEST_CASES is a number"));
    conformance::passes(ProptestConfig::with_cases(cases), Site::new);
}
