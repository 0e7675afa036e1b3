//! `put`: from standard input and files, one entry or one a line.

use std::fs;

use super::{assert_whole, done, feed, listed, refused, shown, with};

/// Data comes from standard input or a file, byte for byte; the name is printed.
#[test]
fn an_entry() {
    let site = with(&[]);
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fs::write(site.path("file"), &bytes).unwrap();
    let (code, first, _) = feed(&site, &["put", "s", "q", "--meta", "two words"], &bytes);
    assert_eq!(code, 0);
    let second = done(&site, &["put", "s", "q", "--meta=two words", "file"]);
    let names = [first.trim_end(), second.trim_end()];
    assert_eq!(listed(&site, "q"), names);
    for name in names {
        let shown = shown(&site, name);
        assert_eq!(shown["metadata"], "two words");
        assert_eq!(fs::read(shown["data_path"].as_str().unwrap()).unwrap(), bytes);
    }
    assert_eq!(done(&site, &["put", "s", "q", "--name", "mine"]), "mine\n");
    assert_whole(&site);
}

/// Data larger than the available memory goes through in pieces.
#[test]
fn more_than_memory() {
    const BYTES: u64 = 192 << 20;
    let site = with(&[]);
    fs::File::create(site.path("large")).unwrap().set_len(BYTES).unwrap();
    let put = super::command(&site, &["put", "s", "q", "--name", "a", "large"]);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -d 65536; exec \"$@\"", "sh"]).arg(put.get_program());
    let output = shell.args(put.get_args()).current_dir(site.path("")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::metadata(site.path("s/.data/a")).unwrap().len(), BYTES);
    assert_whole(&site);
}

/// More than the limit is refused, and leaves nothing.
#[test]
fn more_than_may_be() {
    let site = with(&[]);
    fs::File::create(site.path("huge")).unwrap().set_len((1 << 30) + 1).unwrap();
    refused(&site, &["put", "s", "q", "huge"], 65, "more than 1073741824 bytes");
    for directory in [".data", ".registry", ".tmp", ".shiftboss/tmp"] {
        assert_eq!(fs::read_dir(site.path("s").join(directory)).unwrap().count(), 0, "{directory}");
    }
}

/// Unreadable input puts nothing, and neither does a name that is taken.
#[test]
fn nothing_is_put() {
    let site = with(&["a"]);
    refused(&site, &["put", "s", "q", "--name", "a"], 65, "the name a is taken");
    done(&site, &["rm", "s", "q", "a"]);
    for file in ["missing", "."] {
        refused(&site, &["put", "s", "q", file], 65, "nothing is put");
    }
    refused(&site, &["put", "s", "q", "--lines", "."], 65, "0 lines of it are put");
    assert_eq!(listed(&site, "q"), [""; 0]);
    assert_whole(&site);
}

/// An entry a line, in their order; an empty line is an entry, but a missing last line end does not add one.
#[test]
fn lines() {
    let site = with(&[]);
    for input in ["one\n\nthree \r", "one\n\nthree \r\n"] {
        let (code, stdout, _) =
            feed(&site, &["put", "s", "q", "--lines", "--meta", "m"], input.as_bytes());
        assert_eq!(code, 0);
        let names: Vec<&str> = stdout.lines().collect();
        assert_eq!(listed(&site, "q"), names);
        let data = |name: &&str| fs::read_to_string(site.path("s/.data").join(name)).unwrap();
        assert_eq!(names.iter().map(data).collect::<Vec<_>>(), ["one", "", "three \r"]);
        names.iter().for_each(|name| _ = done(&site, &["rm", "s", "q", name]));
    }
    assert_eq!(feed(&site, &["put", "s", "q", "--lines"], b"").1, "");
    assert_whole(&site);
}

/// An entry a line, which is its metadata; invalid metadata is refused, and so are settings of other modes.
#[test]
fn lines_of_metadata() {
    let site = with(&[]);
    let put = ["put", "s", "q", "--meta-lines"];
    let (code, stdout, _) = feed(&site, &put, b"alpha 1\nbravo  2");
    assert_eq!(code, 0);
    for (name, metadata) in stdout.lines().zip(["alpha 1", "bravo  2"]) {
        assert_eq!(shown(&site, name)["metadata"], metadata);
        assert_eq!(fs::read(site.path("s/.data").join(name)).unwrap(), b"");
        done(&site, &["rm", "s", "q", name]);
    }
    assert_eq!(stdout.lines().count(), 2);
    let (code, stdout, stderr) = feed(&site, &put, &vec![b'x'; (1 << 20) + 2]);
    assert_eq!((code, &*stdout), (65, ""), "{stderr}");
    for more in [&["--lines"][..], &["--meta", "m"], &["--name", "n"]] {
        assert_eq!(feed(&site, &[&put[..], more].concat(), b"alpha 1\n").0, 64, "{more:?}");
    }
    assert_eq!(listed(&site, "q"), [""; 0]);
    assert_whole(&site);
}

/// More lines than a process may have open files.
#[test]
fn many_lines() {
    let site = with(&[]);
    let input: String = (0..2000).map(|number| format!("{number}\n")).collect();
    let (code, stdout, _) = feed(&site, &["put", "s", "q", "--lines"], input.as_bytes());
    assert_eq!((code, stdout.lines().count()), (0, 2000));
    assert_eq!(listed(&site, "q").len(), 2000);
}
