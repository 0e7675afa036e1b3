//! The program that was built without PostgreSQL and RabbitMQ (`--no-default-features`): it refuses what it cannot do, with a word about why.

use crate::common::Site;

const URL: &str = "postgres://user:secret@host/queue";

#[test]
fn a_url_is_refused() {
    let site = Site::new();
    site.start().stop();
    for command in [
        &["serve", URL, "input", "other-socket"][..],
        &["status", URL],
        &["why", URL, "alpha"],
        &["migrate", URL],
        &["move", "state.db", URL],
        &["move", URL, "other.db"],
        &["forget-daemon", URL, "name"],
    ] {
        let refused = site.run(command);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(78), "{command:?}: {error}");
        assert!(error.contains("built without PostgreSQL") && !error.contains("secret"), "{error}");
    }
    assert!(!site.path("other.db").exists() && !site.path("other-socket").exists());
}

#[test]
fn a_broker_is_refused() {
    let site = Site::new();
    let broker = "amqp://user:secret@host/";
    for command in [
        &["serve", "--broker", broker, "state.db", "input", "other-socket"][..],
        &["relay", broker, "input", "other-socket"],
    ] {
        let refused = site.run(command);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(78), "{command:?}: {error}");
        assert!(error.contains("built without RabbitMQ") && !error.contains("secret"), "{error}");
    }
    assert!(!site.path("state.db").exists() && !site.path("other-socket").exists());
}
