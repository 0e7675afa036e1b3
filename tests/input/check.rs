//! `shiftboss check` as a user runs it: what it prints, and how it ends.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

fn check(options: &[&str], directory: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_shiftboss"));
    command.arg("check").args(options).arg(directory);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A directory with the given files.
fn directory(files: &[(&str, &[u8])]) -> TempDir {
    let directory = TempDir::new().unwrap();
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).unwrap();
    }
    directory
}

/// Good files are counted, others in the directory are named and no matter, and the exit code is 0.
#[test]
fn good_files() {
    let directory = directory(&[
        ("b.2.txt.part", b"a 1\nb 2\nunfinished"),
        ("a.1.txt", b"a 1\nlast 2"),
        ("empty.3.txt", b""),
        ("state.db", b"\xff"),
        (".hidden", b""),
    ]);
    let output = check(&[], directory.path());
    assert_eq!(
        text(&output.stdout),
        "a.1.txt: complete, 2 lines accepted, 0 skipped\n\
         b.2.txt.part: growing, 2 lines accepted, 0 skipped\n\
         empty.3.txt: complete, 0 lines accepted, 0 skipped\n\
         state.db: ignored: a fetcher file is named FETCHER.NUMBER.txt\n\
         in all: 3 files, 0 skipped; 4 lines accepted, 0 skipped\n"
    );
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
}

/// Each faulty line is told with file, number and reason, and the exit code is 65.
#[test]
fn faulty_lines() {
    let long = [b"k ".to_vec(), vec![b'x'; 3 << 20], b"\nz 1\none".to_vec()].concat();
    let directory = directory(&[("f.1.txt", b"a 1\n\n\xff b\r\nword\rb 2\n"), ("g.1.txt", &long)]);
    let output = check(&[], directory.path());
    assert_eq!(
        text(&output.stdout),
        "f.1.txt:2: skipped: the line is empty\n\
         f.1.txt:3: skipped: the line is not UTF-8\n\
         f.1.txt:4: skipped: no space after the key: a line is KEY PAYLOAD, and a tab is no space\n\
         f.1.txt: complete, 2 lines accepted, 3 skipped\n\
         g.1.txt:1: skipped: the line has more than 1048576 bytes\n\
         g.1.txt:3: skipped: no space after the key: a line is KEY PAYLOAD, and a tab is no space\n\
         g.1.txt: complete, 1 line accepted, 2 skipped\n\
         in all: 2 files, 0 skipped; 3 lines accepted, 5 skipped\n"
    );
    let message = text(&output.stderr);
    assert!(message.starts_with("shiftboss: 5 lines and 0 files in "), "{message}");
    assert_eq!(output.status.code(), Some(65));
}

/// A file of another format does not fill the memory or the screen: its first lines are listed, all are counted.
#[test]
fn a_file_of_faulty_lines() {
    let directory = directory(&[("f.1.txt", "no-space\n".repeat(100_007).as_bytes())]);
    let output = check(&[], directory.path());
    let listed = text(&output.stdout);
    assert_eq!(listed.matches("f.1.txt:").count(), 100_000 + 2);
    assert!(listed.contains("f.1.txt: more lines are skipped: 100000 are listed, no more\n"));
    assert!(
        listed.contains("f.1.txt: complete, 0 lines accepted, 100007 skipped\n"),
        "{}",
        &listed[..200]
    );
}

/// Whatever else has a fetcher file's name is told with the reason, and nothing hangs.
#[test]
fn what_is_no_regular_file() {
    let directory = directory(&[
        ("a.b.txt", b""),
        ("f.1.txt", b"a 1\n"),
        ("f.1.txt.part", b"b 1\n"),
        ("f.007.txt", b""),
    ]);
    let path = |name: &str| directory.path().join(name);
    fs::write(directory.path().join(OsStr::from_bytes(b"\xff.1.txt")), "").unwrap();
    fs::create_dir(path("d.1.txt")).unwrap();
    symlink("f.1.txt", path("l.1.txt")).unwrap();
    symlink("l.2.txt", path("l.2.txt")).unwrap();
    let _socket = UnixListener::bind(path("s.1.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(path("p.1.txt.part")).status().unwrap().success());
    let output = check(&[], directory.path());
    let other = "not a regular file";
    let digits = "the part after the first dot is not a decimal number without a sign";
    assert_eq!(
        text(&output.stdout),
        format!(
            "a.b.txt: skipped: {digits}\n\
             d.1.txt: skipped: it is a directory, {other}\n\
             f.007.txt: skipped: the number has a leading zero\n\
             f.1.txt: complete, 1 line accepted, 0 skipped\n\
             f.1.txt.part: skipped: f.1.txt is there too, and the complete file wins\n\
             l.1.txt: skipped: it is a symbolic link, {other}\n\
             l.2.txt: skipped: it is a symbolic link, {other}\n\
             p.1.txt.part: skipped: it is a FIFO, {other}\n\
             s.1.txt: skipped: it is a socket, {other}\n\
             \\xff.1.txt: skipped: the name is not UTF-8\n\
             in all: 1 file, 9 skipped; 1 line accepted, 0 skipped\n"
        )
    );
    assert_eq!(output.status.code(), Some(65));
}

/// `--json` is one object that says the same.
#[test]
fn json() {
    let directory =
        directory(&[("f.1.txt", b"a 1\nx\n\n"), ("g.2.txt.part", b"a 1\n"), ("x.txt", b"")]);
    let output = check(&["--json"], directory.path());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let one_word = "no space after the key: a line is KEY PAYLOAD, and a tab is no space";
    let expected = json!({
        "files": [
            {"name": "f.1.txt", "complete": true, "error": null, "accepted_lines": 1, "skipped_lines": 2,
                "skipped": [{"line": 2, "reason": one_word}, {"line": 3, "reason": "the line is empty"}]},
            {"name": "g.2.txt.part", "complete": false, "error": null, "accepted_lines": 1, "skipped_lines": 0,
                "skipped": []},
            {"name": "x.txt", "error": "the name is not FETCHER.NUMBER.txt or FETCHER.NUMBER.txt.part"},
        ],
        "read_files": 2, "skipped_files": 1, "accepted_lines": 2, "skipped_lines": 2,
    });
    assert_eq!(found, expected);
    assert_eq!(output.status.code(), Some(65));
    let empty = TempDir::new().unwrap();
    let output = check(&["--json"], empty.path());
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["files"], output.status.code()), (&json!([]), Some(0)));
}

/// A directory that is not there, or is none, is named, with exit code 78.
#[test]
fn no_directory() {
    let directory = directory(&[("file", b"")]);
    for (name, why) in [("none", "No such file or directory"), ("file", "Not a directory")] {
        let output = check(&[], &directory.path().join(name));
        let message = text(&output.stderr);
        assert!(message.starts_with("shiftboss: cannot read the input directory "), "{message}");
        assert!(message.contains(name) && message.contains(why), "{message}");
        assert_eq!((text(&output.stdout), output.status.code()), ("", Some(78)));
    }
}

/// A reader that has seen enough (`| head`) ends it quietly, with 0.
#[test]
fn a_closed_pipe_is_quiet() {
    let directory = directory(&[("f.1.txt", "x\n".repeat(100_000).as_bytes())]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_shiftboss"))
        .arg("check")
        .arg(directory.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 7];
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut first).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(&first, b"f.1.txt");
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
}

/// An output that cannot be written is an I/O error, 74.
#[test]
fn a_full_output_is_told() {
    let directory = directory(&[]);
    let output = Command::new(env!("CARGO_BIN_EXE_shiftboss"))
        .arg("check")
        .arg(directory.path())
        .stdout(fs::OpenOptions::new().write(true).open("/dev/full").unwrap())
        .output()
        .unwrap();
    let message = text(&output.stderr);
    assert!(message.starts_with("shiftboss: cannot write to standard output: "), "{message}");
    assert_eq!(output.status.code(), Some(74));
}
