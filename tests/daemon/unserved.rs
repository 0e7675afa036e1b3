//! A database on a server that is not there, refuses, or is misspelt. Needs no server: what answers is a socket of the test.

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::Command;
use std::thread::JoinHandle;

use crate::common::Site;
use crate::common::said::code_and_error;

/// Each command that takes a URL refuses this one, says why, without its password, and makes nothing.
fn is_refused(site: &Site, url: &str, why: &str) {
    for command in
        [&["status", "-t", url][..], &["migrate", "-t", url], &["serve", url, "input", "socket"]]
    {
        let (code, error) = code_and_error(&site.run(command));
        assert!(code == 64 && error.contains(why), "{command:?}: {code} {error}");
        assert!(!error.contains("secret") && !error.contains("ret@"), "{error}");
    }
    assert!(!site.path("socket").exists() && !site.path("input").exists());
}

/// What is wrong with a URL is said.
#[test]
fn a_wrong_url_is_refused() {
    for (url, why) in [
        ("postgres://u:secret@h:port/d", "port"),
        ("postgres://u:secret@h", "it names no database"),
        ("postgres://u:secret@h/d?sslmode=verify-ca", "verify-full"),
        ("postgres://u:secret@h/d?leese=1", "leese"),
        ("postgres://u:sec@ret@h/d", "%40"),
        ("postgres://u:secret@/tmp/server:5432/d", "%2F"),
        ("postgres://u:secret@h/d?sslmode=verify-full&sslrootcert=/nowhere.pem", "/nowhere.pem"),
    ] {
        is_refused(&Site::bare(), url, why);
    }
}

/// What SQLite alone has is refused for a server, and what to use instead is said; and the other way round.
#[test]
fn what_does_not_fit_is_refused() {
    let site = Site::bare();
    let url = "postgres://u:secret@h/d";
    for (arguments, code, why) in [
        (&["backup", "-t", url, "copy"][..], 64, "pg_dump"),
        (&["move", "--salvage", url, "new.db"], 64, "pg_restore"),
        (&["move", "--salvage", "a.db", url], 64, "in a file"),
        (&["move", url, "supervisor.py:new.db"], 64, "to a file first"),
        (&["recover", "a.db", "new.db"], 64, "unrecognized subcommand"),
        (&["check", "--database", url], 64, "pg_amcheck"),
        (&["serve", "--classic", url, "input", "socket"], 64, "classic"),
        (&["serve", "--durability", "process", url, "input", "socket"], 64, "power cut"),
        (&["serve", "--daemon-name", "a", "a.db", "input", "socket"], 64, "daemon_name"),
        (&["serve", "--takeover", "1h", "a.db", "input", "socket"], 64, "takeover"),
        (&["serve", "--poll", "1s", "a.db", "input", "socket"], 64, "poll"),
        (&["serve", "--poll-notified", "0s", "a.db", "input", "socket"], 64, "1s"),
        (&["serve", "--no-migrate", "a.db", "input", "socket"], 64, "no_migrate"),
        (&["serve", "--daemon-name", "", url, "input", "socket"], 64, "daemon-name"),
        (&["migrate", "-t", "a.db"], 64, "`serve` makes"),
        (&["forget", "--daemon", "b", "-t", "a.db"], 69, "there is no database"),
        (&["forget-daemon", url, "b"], 64, "shiftboss forget -t postgres://u@h/d --daemon b"),
        (&["fetch", url, "f", "--", "true"], 64, "is a database: give the input directory"),
        (&["why", url, "a"], 64, "shiftboss why -t postgres://u@h/d a"),
        (&["status", "-t", url, "one"], 64, "unexpected argument"),
    ] {
        let (found, error) = code_and_error(&site.run(arguments));
        assert!(found == code && error.contains(why), "{arguments:?}: {found} {error}");
        assert!(!error.contains("secret"), "{error}");
    }
    let help = site.program().env("SHIFTBOSS_DATABASE", url).args(["serve", "--help"]).output();
    assert!(!String::from_utf8(help.unwrap().stdout).unwrap().contains("secret"));
}

/// A server that cannot be reached may come: a restart helps.
#[test]
fn a_server_that_is_away_is_unavailable() {
    let site = Site::bare();
    let url = format!("postgres://u:secret@{}/d", escaped(&site));
    for command in [
        &["tasks", "--next", "-t", &url][..],
        &["migrate", "-t", &url],
        &["serve", &url, "input", "socket"],
    ] {
        let (code, error) = code_and_error(&site.run(command));
        assert!(code == 69 && error.contains("cannot connect to postgres://u@"), "{code} {error}");
        assert!(error.contains("/.s.PGSQL.5432): No such file or directory"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
    assert!(!site.path("socket").exists() && !site.path("input").exists());
}

/// A daemon is ready when it has its queue: one whose server is not there, or accepts connections and answers nothing, never says
/// so to the init system, and ends.
#[test]
fn without_its_server_a_daemon_is_never_ready() {
    let site = Site::bare();
    let notify = UnixDatagram::bind(site.path("notify")).unwrap();
    notify.set_nonblocking(true).unwrap();
    let refused = || {
        let mut command = site.program();
        command.env("NOTIFY_SOCKET", site.path("notify"));
        let url = format!("postgres://u@{}/d", escaped(&site));
        command.args(["serve", &url, "input", "socket"]);
        let (code, error) = code_and_error(&command.output().unwrap());
        assert_eq!(code, 69, "{error}");
        let mut said = [0_u8; 4096];
        while let Ok(length) = notify.recv(&mut said) {
            let said = String::from_utf8_lossy(&said[..length]);
            assert!(!said.contains("READY=1"), "{said}");
        }
        assert!(!site.path("socket").exists());
        error
    };
    assert!(refused().contains("No such file or directory"));
    let _frozen = UnixListener::bind(site.path(".s.PGSQL.5432")).unwrap();
    assert!(refused().contains("did not answer within 5 s"));
}

/// The directory of a site as the host of a URL.
fn escaped(site: &Site) -> String {
    site.path("").to_str().unwrap().trim_end_matches('/').replace('/', "%2F")
}

/// A server that asks for a password, and refuses whatever it is; it returns what it was given.
fn refusing(site: &Site) -> JoinHandle<String> {
    let listener = UnixListener::bind(site.path(".s.PGSQL.5432")).unwrap();
    std::thread::spawn(move || {
        let (mut asked, _) = listener.accept().unwrap();
        // A client may ask for TLS first.
        if message(&mut asked, 0) == 80_877_103_u32.to_be_bytes() {
            asked.write_all(b"N").unwrap();
            message(&mut asked, 0);
        }
        // AuthenticationCleartextPassword.
        asked.write_all(b"R\0\0\0\x08\0\0\0\x03").unwrap();
        let password = message(&mut asked, 1);
        let fields = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user \"u\"\0\0";
        let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
        asked.write_all(&[b"E", &length[..], fields].concat()).unwrap();
        String::from_utf8(password).unwrap().trim_end_matches('\0').to_owned()
    })
}

/// The text of a message, behind `before` bytes and its length.
fn message(stream: &mut UnixStream, before: usize) -> Vec<u8> {
    let mut head = vec![0; before + 4];
    stream.read_exact(&mut head).unwrap();
    let length = u32::from_be_bytes(head[before..].try_into().unwrap());
    let mut text = vec![0; length as usize - 4];
    stream.read_exact(&mut text).unwrap();
    text
}

/// A password comes from the URL, or PGPASSWORD, or the file of PGPASSFILE; where it is wrong, that is said, and it is not.
#[test]
fn a_wrong_password_is_refused() {
    let file = "# comment\n*:*:e:u:other\nlocalhost:5432:d:u:from\\:file\n";
    let by_url: fn(&mut Command) = |_| ();
    let by_variable: fn(&mut Command) = |command| _ = command.env("PGPASSWORD", "from-env");
    let by_file: fn(&mut Command) = |command| _ = command.env("PGPASSFILE", "passwords");
    for (user, set, expected) in [
        ("u:from%20url", by_url, "from url"),
        ("u", by_variable, "from-env"),
        ("u", by_file, "from:file"),
    ] {
        let site = Site::bare();
        site.write_private("passwords", file);
        let server = refusing(&site);
        let mut command = site.program();
        set(&mut command);
        command.args(["migrate", "-t", &format!("postgres://{user}@{}/d", escaped(&site))]);
        let (code, error) = code_and_error(&command.output().unwrap());
        assert_eq!(server.join().unwrap(), expected);
        assert!(code == 78 && error.contains("the password is wrong: "), "{code} {error}");
        assert!(!error.contains(expected), "{error}");
    }
}

/// A server that wants a password and is not given any is told apart from one that does not take it.
#[test]
fn a_missing_password_is_named() {
    let site = Site::bare();
    let server = refusing(&site);
    let url = format!("postgres://u@{}/d", escaped(&site));
    let (code, error) = code_and_error(&site.run(&["migrate", "-t", &url]));
    assert!(code == 78 && error.contains("wants a password, and none was found; "), "{error}");
    assert!(error.contains("PGPASSFILE"), "{error}");
    assert!(server.join().is_err(), "it was given none");
}

/// What is no database of ours is not taken for a file's path, unless there is one.
#[test]
fn other_schemes_are_refused() {
    let site = Site::bare();
    for url in ["mysql://u:secret@h/d", "postgres:/u:secret@h/d", "sqlite:/tmp/d"] {
        is_refused(&site, url, "written postgres://USER@HOST/DATABASE");
    }
    std::fs::create_dir(site.path("file:")).unwrap();
    std::fs::write(site.path("file:/d"), "").unwrap();
    let (code, error) = code_and_error(&site.run(&["status", "-t", "file:/d"]));
    assert!(code != 64, "{code} {error}");
}

/// A file of passwords that others may read is refused.
#[test]
fn others_may_not_read_the_passwords() {
    let site = Site::bare();
    std::fs::write(site.path("passwords"), "*:*:*:*:secret\n").unwrap();
    let mut command = site.program();
    command.env("PGPASSFILE", "passwords").args(["migrate", "-t", "postgres://u@h/d"]);
    let (code, error) = code_and_error(&command.output().unwrap());
    assert!(code == 78 && error.contains("chmod 600 passwords"), "{code} {error}");
}
