//! `shiftboss ask` as a user runs it, against a listener of the test's own.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, JoinHandle};

use tempfile::TempDir;

fn ask(options: &[&str], socket: &Path, lines: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shiftboss"));
    command.arg("ask").args(options).arg("-t").arg(socket).args(lines);
    command
}

fn output(mut command: Command) -> (String, String, Option<i32>) {
    let Output { stdout, stderr, status } = command.output().unwrap();
    (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap(), status.code())
}

/// A socket on which `serve` is called with the first connection.
fn daemon<T: Send + 'static>(
    serve: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> (TempDir, PathBuf, JoinHandle<T>) {
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("s.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = thread::spawn(move || serve(listener.accept().unwrap().0));
    (directory, socket, thread)
}

/// Reads to the end of what is asked, answers, and closes.
fn answer_with(answer: &'static [u8]) -> impl FnOnce(UnixStream) -> String {
    move |mut stream| {
        let mut asked = String::new();
        stream.read_to_string(&mut asked).unwrap();
        stream.write_all(answer).unwrap();
        asked
    }
}

/// All lines are sent, the write side is closed, and the answers are printed as they came.
#[test]
fn answers_are_printed() {
    let (_directory, socket, thread) = daemon(answer_with(b"JOB a  1 \xc3\xa9\nNOJOBS\n"));
    let (stdout, _, code) = output(ask(&[], &socket, &["READY", "DONE a 0"]));
    assert_eq!((&*stdout, code), ("JOB a  1 é\nNOJOBS\n", Some(0)));
    assert_eq!(thread.join().unwrap(), "READY\nDONE a 0\n");
}

/// Who was given a job is told so, with its key, and how to give it back.
#[test]
fn a_job_that_was_taken_is_told() {
    for (lines, answer, key) in [
        (&["READY"][..], &b"JOB a  1 x\n"[..], Some("a")),
        (&["HELLO 2 w", "READY"], b"HELLO 2 0.1.0\nJOB 17 b 1\n", Some("b")),
        (&["READY"], b"JOB $(id) 1\n", Some("'$(id)'")),
        (&["READY"], b"NOJOBS\n", None),
    ] {
        let (_directory, socket, thread) = daemon(answer_with(answer));
        let (_, stderr, code) = output(ask(&[], &socket, lines));
        let told = key.map(|key| {
            let back = format!("`shiftboss -t {} requeue {key}`", socket.display());
            stderr.contains(&format!("the job of {}:", key.trim_matches('\'')))
                && stderr.contains(&back)
        });
        assert_eq!((told.unwrap_or(stderr.is_empty()), code), (true, Some(0)), "{stderr}");
        thread.join().unwrap();
    }
}

/// A daemon that closes without a word is unavailable, and its log is pointed at.
#[test]
fn a_silent_close() {
    let (_directory, socket, thread) = daemon(drop);
    let (stdout, stderr, code) = output(ask(&[], &socket, &["what"]));
    assert!(stderr.contains(": it closed the connection; its log says why"), "{stderr}");
    assert_eq!((&*stdout, code), ("", Some(69)));
    thread.join().unwrap();
}

/// What was answered before the daemon closed on unread lines is printed, and that lines are left.
#[test]
fn a_close_with_lines_unread() {
    let (_directory, socket, thread) = daemon(|mut stream| {
        stream.read_exact(&mut [0; 6]).unwrap();
        stream.write_all(b"NOJOBS\n").unwrap();
    });
    let lines = vec!["x"; 50_000];
    let (stdout, stderr, code) = output(ask(&[], &socket, &[&["READY"], &lines[..]].concat()));
    assert!(
        stderr.contains(": it closed the connection at line 2 of 50001; its log says why"),
        "{stderr}"
    );
    assert_eq!((&*stdout, code), ("NOJOBS\n", Some(69)));
    thread.join().unwrap();
}

/// Nobody there is 69, with what to do.
#[test]
fn nobody_listens() {
    let directory = TempDir::new().unwrap();
    let none = directory.path().join("none");
    let stale = directory.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    for (socket, why) in [(none, "No such file or directory"), (stale, "Connection refused")] {
        let (stdout, stderr, code) = output(ask(&[], &socket, &["READY"]));
        assert!(stderr.starts_with("shiftboss: no answer from "), "{stderr}");
        assert!(stderr.contains(why) && stderr.contains("shiftboss serve"), "{stderr}");
        assert_eq!((&*stdout, code), ("", Some(69)));
    }
}

/// A daemon that keeps silent is given up after the timeout, also when it never accepts.
#[test]
fn no_answer_in_time() {
    let (_directory, socket, thread) = daemon(|stream| stream);
    let (stdout, stderr, code) = output(ask(&["--timeout", "30ms"], &socket, &["READY"]));
    assert!(stderr.contains("waited 30ms") && stderr.contains("--timeout"), "{stderr}");
    assert_eq!((&*stdout, code), ("", Some(69)));
    thread.join().unwrap();
    let directory = TempDir::new().unwrap();
    let socket = directory.path().join("s.sock");
    let _never_accepts = UnixListener::bind(&socket).unwrap();
    let (_, stderr, code) = output(ask(&["--timeout", "30ms"], &socket, &["READY"]));
    assert!(stderr.contains("waited 30ms"), "{stderr}");
    assert_eq!(code, Some(69));
}

/// An answer without an end ends with the time for it, and takes no more memory than a short one, in lines or without.
#[test]
fn an_answer_without_an_end() {
    for piece in [vec![b'x'; 64 * 1024], b"JOB a 1\n".repeat(8 * 1024)] {
        let (_directory, socket, thread) = daemon(move |mut stream| {
            let (mut sent, enough) = (0, 160 * 1024 * 1024);
            while sent < enough && stream.write_all(&piece).is_ok() {
                sent += piece.len();
            }
            sent
        });
        let mut command = Command::new("sh");
        let asked = ask(&["--timeout", "60s"], &socket, &["READY"]);
        // So much address space, of which the program takes the smaller part.
        command.args(["-c", "ulimit -v 200000; exec \"$@\"", "sh"]);
        command.arg(asked.get_program()).args(asked.get_args()).stdout(Stdio::null());
        let (_, stderr, code) = output(command);
        assert!(thread.join().unwrap() >= 160 * 1024 * 1024, "{stderr}");
        assert!(matches!(code, Some(0 | 69)), "{code:?}: {stderr}");
    }
}

/// A reader of the answers that is gone ends it quietly, but not well: a job may be lost to it.
#[test]
fn a_closed_pipe_is_quiet() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let (_directory, socket, thread) = daemon(answer_with(b"NOJOBS\n"));
    let mut command = ask(&[], &socket, &["READY"]);
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    let Output { stderr, status, .. } = child.wait_with_output().unwrap();
    assert_eq!((&stderr[..], status.code()), (&b""[..], Some(74)));
    thread.join().unwrap();
}

/// A path that is too long for a socket, and a wrong time, are usage errors with the value.
#[test]
fn wrong_settings() {
    let long = PathBuf::from("s".repeat(108));
    let (_, stderr, code) = output(ask(&[], &long, &["READY"]));
    assert!(stderr.contains("108 bytes") && stderr.contains("107"), "{stderr}");
    assert_eq!(code, Some(64));
    let (_, stderr, code) = output(ask(&["--timeout", "soon"], Path::new("s"), &["READY"]));
    assert!(stderr.contains("--timeout") && stderr.contains("soon"), "{stderr}");
    assert_eq!(code, Some(64));
    for time in ["0s", "18446744073709551615s"] {
        let (_, stderr, code) = output(ask(&["--timeout", time], Path::new("s"), &["READY"]));
        assert!(stderr.contains("--timeout"), "{stderr}");
        assert_eq!(code, Some(64));
    }
}
