//! Beside and behind the classic protocol.

use std::collections::HashMap;
use std::process::Child;

use rustix::process::Signal;

use super::{GATE, lines, run, start, touch, wait_lines, write_jobs};
use crate::common::wait::pause;
use crate::common::{Site, wait_equal, wait_until};

/// A classic worker in shell, as people have them.
const SHELL_WORKER: &str = r#"
line=READY
while :; do
    answer=$("$1" ask --timeout 5s -t "$2" "$line" 2>/dev/null) || answer=
    case $answer in
    'JOB '*) job=${answer#JOB }; key=${job%% *}; echo "$key" >> ran; line="DONE $key 0" ;;
    *) line=READY; [ ! -e over ] || exit 0; sleep .05 ;;
    esac
done"#;

/// A classic daemon is spoken to as it can be: all is done, and reported.
#[test]
fn a_classic_daemon() {
    let site = Site::new();
    let _daemon = site.start_with(&["--classic"]);
    write_jobs(&site, 10);
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
    let site = Site::new();
    let _daemon = site.start_with(&["--classic"]);
    write_jobs(&site, 2);
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
    let site = Site::new();
    let daemon = site.start();
    write_jobs(&site, 1);
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

/// Six classic workers in shell beside protocol 2, on one daemon: every key once.
#[test]
fn classic_workers_beside_others() {
    let site = Site::new();
    let _daemon = site.start();
    let shell = |_| -> Child {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", SHELL_WORKER, "sh", env!("CARGO_BIN_EXE_shiftboss")]);
        shell.arg(site.socket()).current_dir(site.path("")).spawn().unwrap()
    };
    let mut shells: Vec<Child> = (0..6).map(shell).collect();
    let worker = start(&site, &["-n", "3"], "echo $SHIFTBOSS_KEY >> ran");
    let other = start(&site, &["-n", "2"], "echo $SHIFTBOSS_KEY >> ran");
    for part in 0..20 {
        let lines: String = (0..15).map(|number| format!("k{part}.{number} p\n")).collect();
        site.append("f.1.txt.part", lines);
        pause(std::time::Duration::from_millis(20));
    }
    wait_lines(&site, "ran", 300);
    wait_equal("all are reported", &300, || {
        site.number("SELECT count(*) FROM log WHERE exit_code = 0")
    });
    touch(&site, "over");
    shells.iter_mut().for_each(|shell| assert!(shell.wait().unwrap().success()));
    worker.stop();
    other.stop();
    let mut counts = HashMap::new();
    lines(&site, "ran").into_iter().for_each(|key| *counts.entry(key).or_insert(0) += 1);
    assert_eq!(counts.len(), 300);
    assert!(counts.values().all(|count| *count == 1), "{counts:?}");
}
