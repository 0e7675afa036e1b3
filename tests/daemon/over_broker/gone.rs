//! A relay that is gone: told by `status --check` and metrics, and forgotten with one command.

use super::{Installation, PATIENCE, attempt, worker};
use crate::common::said::all_said;
use crate::common::wait_within;

/// One that was killed is trouble until it is forgotten: then its lists are gone, and its fetchers are free, while the daemon goes
/// on with the job.
#[test]
fn a_killed_relay_is_told_and_forgotten() {
    let installation = Installation::start();
    let relay = installation.relay("r");
    relay.site.write("f.1.txt", "alpha 1\nbravo 1\n");
    installation.site.wait_count(2);
    attempt(&worker(&relay.site, 60).ask("READY"));
    let site = &installation.site;
    let run = |words: &[&str]| all_said(&site.run(words));
    let metrics = || run(&["metrics"]).1;
    let forget = || run(&["forget", "--daemon", "r"]);
    assert!(metrics().contains("shiftboss_broker_connected 1.0"), "{}", metrics());
    assert!(metrics().contains("shiftboss_relays{state=\"joined\"} 1.0"), "{}", metrics());
    assert_eq!(forget().0, 75);
    relay.daemon.kill();
    let check = || run(&["status", "--check"]);
    wait_within(PATIENCE, "it is told", || check().0 == 1);
    assert!(check().1.contains("relay r: it is silent, and was not stopped"), "{:?}", check());
    assert!(metrics().contains("shiftboss_relays{state=\"silent\"} 1.0"), "{}", metrics());
    let (code, forgotten) = forget();
    assert!(code == 0 && forgotten.contains("queue: 1. Fetchers that are free: 1."), "{forgotten}");
    assert_eq!((check().0, forget().0), (0, 65));
    assert_eq!(site.number("SELECT count(*) FROM queue"), 0);
    assert_eq!(site.number("SELECT count(*) FROM out"), 1);
    let other = installation.relay("s");
    other.site.write("f.2.txt", "charlie 1\n");
    site.wait_sql("SELECT attr_path FROM queue", &["charlie"]);
    // Should it come back, it begins anew.
    drop(installation.start_relay(&relay.site, &super::broker(), "r").ready());
    assert_eq!(site.integrity(), ["ok"]);
}
