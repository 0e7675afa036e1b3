//! Jobs that are run: what their commands are given, how many at a time, how many at all.

use std::process::Output;

use super::{
    ATTEMPTS, GATE, jobs, lines, run, start, touch, wait_lines, with_jobs, work, work_script,
};
use crate::common::{Site, wait_equal, wait_until};

/// Places in the arguments are filled, the environment is set, and output is told by its key.
#[test]
fn commands_are_told_their_job() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", "alpha  $(id) {key} \"x\"\n");
    let script = "printf '%s|' \"$@\" \"$SHIFTBOSS_KEY\" \"$SHIFTBOSS_PAYLOAD\" \
        \"$SHIFTBOSS_ATTEMPT\" \"$SHIFTBOSS_WORKER\"; echo; echo >&2 problem; printf end";
    let command = ["sh", "-c", script, "sh", "{key}", "a{payload}b", "{other}x"];
    let work = work(&site, &["--once", "--name", "me-1"], &command).output();
    let Output { status, stdout, .. } = work.unwrap();
    assert_eq!(status.code(), Some(0));
    let payload = " $(id) {key} \"x\"";
    let attempt = &site.sql("SELECT attempt FROM ended")[0];
    let told = format!("alpha: alpha|a{payload}b|{{other}}x|alpha|{payload}|{attempt}|me-1|\n");
    let expected = format!("{told}alpha: problem\nalpha: end\n");
    assert_eq!(String::from_utf8(stdout).unwrap(), expected);
    assert_eq!(site.sql(ATTEMPTS), ["alpha|0"]);
    assert_eq!(site.sql("SELECT worker FROM ended"), ["me-1"]);
}

/// With `--once` all is done, and then it ends with 0, whatever the results were. Nothing to do is no
/// error.
#[test]
fn once_does_all() {
    let (site, _daemon) = Site::running(&[]);
    assert_eq!(run(&site, &["--once"], "exit 1").0, Some(0));
    site.write("f.1.txt", jobs(20));
    let (code, _, log) = run(&site, &["--once", "-n", "4"], "exit ${SHIFTBOSS_KEY#k}");
    assert_eq!(code, Some(0), "{log}");
    let ended = site.sql(
        "SELECT attr_path, exit_code FROM ended \
        WHERE exit_code IS NOT NULL AND attr_path = 'k' || exit_code",
    );
    assert_eq!(ended.len(), 20);
    assert_eq!(log.matches("WARN").count(), log.matches("A job failed.").count(), "{log}");
}

/// `-n 4` runs four at a time, and not five.
#[test]
fn so_many_at_a_time() {
    let (site, _daemon) = with_jobs(9, &[]);
    let mut worker = start(&site, &["--once", "-n", "4"], &format!("echo >> ran; {GATE}"));
    wait_lines(&site, "ran", 4);
    wait_equal("four are in flight", &4, || {
        site.number("SELECT count(*) FROM log WHERE finished IS NULL")
    });
    assert_eq!(lines(&site, "ran").len(), 4);
    touch(&site, "go");
    assert_eq!(worker.exit().code(), Some(0));
    assert_eq!(lines(&site, "ran").len(), 9);
}

/// A key is somebody else's text: no shell is given it as a part of its script, unless that is wanted.
#[test]
fn keys_are_not_executed() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", "$(touch${IFS}executed) p\n");
    let command = ["sh", "-c", "echo {key}"];
    let refused = work(&site, &["--once"], &command).output().unwrap();
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(64), "{told}");
    assert!(told.contains("sh -c 'echo \"$1\"' sh {key}"), "{told}");
    let output = site.run(&["on-change", ".", "--", "busybox", "sh", "-c", "ls {paths}"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{told}");
    assert!(told.contains("--allow-shell-templates"), "{told}");
    let right = ["sh", "-c", "echo \"$1\"", "sh", "{key}"];
    assert_eq!(work(&site, &["--max-jobs", "1"], &right).status().unwrap().code(), Some(0));
    assert!(!site.path("executed").exists());
    site.write("f.2.txt", "$(touch${IFS}executed) p\n");
    let allowed = work(&site, &["--once", "--allow-shell-templates"], &command).status().unwrap();
    assert_eq!(allowed.code(), Some(0));
    assert!(site.path("executed").exists());
}

/// What is being handed out while the daemon counts what waits is taken off once.
#[test]
fn the_number_that_waits_is_right() {
    use std::io::Read;

    let (site, _daemon) = with_jobs(36, &[]);
    for left in (33..36).rev() {
        let (terminal, mut shown) = crate::common::terminal::terminal();
        let mut work = work_script(&site, &["--max-jobs", "1"], "sleep 0.6");
        let given = || terminal.try_clone().unwrap();
        work.env("TERM", "xterm").stdout(given()).stderr(given());
        let mut child = work.spawn().unwrap();
        drop((work, terminal));
        let (mut bytes, mut text) = (Vec::new(), String::new());
        // The worker was the last to hold the terminal: it has no end but an error.
        while let Ok(length) = shown.read({
            bytes.resize(1024, 0);
            &mut bytes
        }) && length > 0
        {
            text.push_str(&String::from_utf8_lossy(&bytes[..length]));
        }
        assert!(child.wait().unwrap().success());
        let running = format!("1 running, 0 succeeded, 0 failed, 0.0/s, {left} waiting");
        assert!(text.contains(&running), "{text:?}");
        assert!(!text.contains(&format!(" {} waiting", left - 1)), "{text:?}");
    }
}

/// On a terminal it shows how it goes, with the lines of commands above.
#[test]
fn progress_on_a_terminal() {
    use std::io::Read;

    let (site, _daemon) = with_jobs(3, &[]);
    let (given, mut shown) = crate::common::terminal::terminal();
    let script = format!("echo said; {GATE}; [ $SHIFTBOSS_KEY != k1 ]");
    let mut work = work_script(&site, &["--once"], &script);
    work.env("TERM", "xterm").stdout(given.try_clone().unwrap()).stderr(given);
    let mut child = work.spawn().unwrap();
    drop(work);
    let mut text = String::new();
    while !text.contains("1 running, 0 succeeded, 0 failed, 0.0/s, 2 waiting") {
        let mut bytes = [0; 1024];
        let length = shown.read(&mut bytes).unwrap();
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    while !text.contains("Stopping") {
        let mut bytes = [0; 1024];
        let length = shown.read(&mut bytes).unwrap();
        text.push_str(&String::from_utf8_lossy(&bytes[..length]));
    }
    touch(&site, "go");
    let mut status = None;
    let mut bytes = Vec::new();
    wait_until("the worker ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    let _ = shown.read_to_end(&mut bytes);
    text.push_str(&String::from_utf8_lossy(&bytes));
    assert_eq!(status.unwrap().code(), Some(0), "{text}");
    assert!(text.contains(": said\r\n"), "{text}");
    // The line was cleared before the event was written.
    let event = text.find("\u{1b}[2m20").unwrap();
    assert!(text[..event].ends_with(['K', '\r', '\n']), "{text:?}");
}
