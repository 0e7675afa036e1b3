//! Waiting in the tests of actors: on a condition, with a deadline.

/// Lets other tasks run until `condition` holds; panics after a while of real time.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
}
