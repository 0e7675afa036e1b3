//! Beside and behind the classic protocol.

use rustix::process::Signal;

use super::{GATE, lines, run, start, touch, wait_lines, with_jobs};
use crate::common::{wait_equal, wait_until};

/// A classic daemon is spoken to as it can be: all is done, and reported.
#[test]
fn a_classic_daemon() {
    let (site, _daemon) = with_jobs(10, &["--classic"]);
    let script = "echo \"$SHIFTBOSS_KEY,$SHIFTBOSS_ATTEMPT,\" >> ran; exit 6";
    let (code, _, log) = run(&site, &["--once", "-n", "2"], script);
    assert_eq!(code, Some(0), "{log}");
    let expected: Vec<String> = (0..10).map(|number| format!("k{number},,")).collect();
    assert_eq!(lines(&site, "ran"), expected);
    assert_eq!(site.sql("SELECT count(*) FROM log WHERE exit_code = 6"), ["10"]);
    assert_eq!(log.matches("The daemon speaks the classic protocol.").count(), 1, "{log}");
}

/// A stop names the job that the last `DONE` took.
#[test]
fn a_stop_names_what_it_abandons() {
    let (site, _daemon) = with_jobs(2, &["--classic"]);
    let mut worker = start(&site, &[], &format!("echo $SHIFTBOSS_KEY >> ran; {GATE}"));
    wait_lines(&site, "ran", 1);
    worker.signal(Signal::TERM);
    wait_until("it says so", || worker.log().contains("Stopping"));
    touch(&site, "go");
    assert_eq!(worker.exit().code(), Some(0));
    let other = if lines(&site, "ran") == ["k0"] { "k1" } else { "k0" };
    assert_eq!(
        worker.warnings(&["abandoned", &format!("key=\"{other}\"")]).len(),
        1,
        "{}",
        worker.log()
    );
    assert_eq!(site.sql("SELECT attr_path FROM log WHERE finished IS NULL"), [other]);
}

/// A result survives that the daemon is replaced by a classic one, and back.
#[test]
fn a_daemon_that_changes_its_protocol() {
    let (site, daemon) = with_jobs(1, &[]);
    let worker = start(&site, &[], &format!("echo >> ran; {GATE}; exit 3"));
    wait_lines(&site, "ran", 1);
    daemon.stop();
    let daemon = site.start_with(&["--classic"]);
    touch(&site, "go");
    let code = "SELECT exit_code FROM log WHERE attr_path = 'k0'";
    wait_equal("it is reported", &vec!["3".to_owned()], || site.sql(code));
    wait_until("it is told", || worker.log().contains("the classic protocol"));
    daemon.stop();
    worker.kill();
}
