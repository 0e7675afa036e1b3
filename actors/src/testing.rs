//! What the tests of actors use: the queue's engine over records in memory as a store that fails on demand, and a clock
//! that stands still.

// The names here speak for themselves, and a failure here fails a test.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, clippy::unit_arg)]

mod calls;
mod clock;
mod store;

pub use clock::ManualClock;
pub use store::{MockStore, Trouble};

/// Lets other tasks run until `condition` holds; panics after a while of real time.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}
