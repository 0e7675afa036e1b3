//! What the daemon owes to the init system: notifications, sockets that are handed to it, and the
//! rights of the one it makes.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Client, Site, list_of, wait_until};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, socket_with};
use rustix::process::Signal;

fn many_jobs(count: usize) -> Site {
    let site = Site::new();
    site.write("f.1.txt", list_of(count));
    site
}

/// Receives datagrams until one has the line `wanted`.
fn wait_notified(notify: &UnixDatagram, wanted: &str) {
    let mut buffer = [0_u8; 4096];
    wait_until(wanted, || {
        let count = notify.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
        text.lines().any(|line| line == wanted)
    });
}

/// Under systemd: READY=1 once workers can connect, WATCHDOG=1 within the interval again and
/// again, STOPPING=1 at the end.
#[test]
fn the_init_system_is_told() {
    let site = many_jobs(10);
    let notify = UnixDatagram::bind(site.path("notify")).unwrap();
    notify.set_read_timeout(Some(crate::common::wait::DEADLINE)).unwrap();
    let mut command = site.serve(&[]);
    command.env("NOTIFY_SOCKET", site.path("notify")).env("WATCHDOG_USEC", "2000000");
    let daemon = site.spawn(command);
    wait_notified(&notify, "READY=1");
    assert!(site.ask("READY").starts_with("JOB "));
    for _ in 0..3 {
        let start = Instant::now();
        wait_notified(&notify, "WATCHDOG=1");
        assert!(start.elapsed() < Duration::from_secs(2));
    }
    daemon.signal(Signal::TERM);
    wait_notified(&notify, "STOPPING=1");
    let mut daemon = daemon;
    assert_eq!(daemon.exit().code(), Some(0));
}

/// Whatever an init system says of its patience, and whatever it gives, the daemon serves or says what is wrong.
#[test]
fn numbers_of_the_environment() {
    for patience in ["0", "1", "-1", "", "18446744073709551615", "99999999999999999999"] {
        let site = Site::new();
        let mut command = site.serve(&[]);
        command.env("NOTIFY_SOCKET", site.path("nobody")).env("WATCHDOG_USEC", patience);
        site.spawn(command).ready().stop();
    }
    for (name, value, code) in [
        ("LISTEN_FDS", "2147483647", 73),
        ("LISTEN_FDS_FIRST_FD", "2147483647", 73),
        ("RUST_MIN_STACK", "0", 78),
        ("RUST_MIN_STACK", "9223372036854775807", 78),
    ] {
        let site = Site::new();
        let mut command = site.serve(&[]);
        command.env("LISTEN_FDS", "1").env(name, value);
        let refused = site.refused(command);
        assert_eq!(refused.0, code, "{name}={value}: {}", refused.1);
    }
}

/// A daemon whose database thread is stuck does not ping the watchdog.
#[test]
fn a_stuck_daemon_is_not_reported_alive() {
    let site = many_jobs(10);
    let notify = UnixDatagram::bind(site.path("notify")).unwrap();
    let mut command = site.serve(&[]);
    command.env("NOTIFY_SOCKET", site.path("notify")).env("WATCHDOG_USEC", "400000");
    let daemon = site.spawn(command).ready();
    wait_notified(&notify, "WATCHDOG=1");
    daemon.freeze();
    notify.set_nonblocking(true).unwrap();
    let mut buffer = [0_u8; 4096];
    while notify.recv(&mut buffer).is_ok() {}
    crate::common::wait::pause(Duration::from_millis(600));
    assert!(notify.recv(&mut buffer).is_err());
    daemon.thaw();
    notify.set_nonblocking(false).unwrap();
    wait_notified(&notify, "WATCHDOG=1");
}

/// A socket that the init system made and listens on is used, and left where it is.
#[test]
fn socket_activation() {
    let site = many_jobs(10);
    let listener = UnixListener::bind(site.socket()).unwrap();
    // Sent before there is a daemon.
    let mut early = Client::connect(&site);
    early.write(b"READY\n");
    let script = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 0</dev/null";
    for _ in 0..2 {
        let mut shell = site.through_shell(script, &[]);
        shell.stdin(Stdio::from(OwnedFd::from(listener.try_clone().unwrap())));
        let daemon = site.spawn(shell);
        assert!(site.ask("READY").starts_with("JOB "));
        daemon.stop();
        assert!(site.socket().exists());
    }
    assert!(early.line().starts_with("JOB "));
}

/// A socket that listens to nobody, be it a connection or one that was only bound, is refused: no worker could connect.
#[test]
fn a_socket_that_does_not_listen() {
    let site = many_jobs(1);
    let bound =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&bound, &SocketAddrUnix::new(site.path("bound")).unwrap()).unwrap();
    let (pair, _other) = UnixStream::pair().unwrap();
    let script = "LISTEN_FDS=1 LISTEN_PID=$$ exec \"$@\" 3<&0 0</dev/null";
    for socket in [bound, pair.into()] {
        let mut shell = site.through_shell(script, &[]);
        shell.stdin(Stdio::from(socket));
        let (code, log) = site.refused(shell);
        assert!(code == 73 && log.contains("does not listen"), "{code}: {log}");
    }
}

/// The socket's mode is 0600 unless set, whatever the umask, from the first moment on.
#[test]
fn the_socket_s_mode() {
    for (options, mode) in [(&[][..], 0o600), (&["--socket-mode", "0666"][..], 0o666)] {
        for umask in ["000", "077"] {
            let site = many_jobs(1);
            let script = format!("umask {umask}; exec \"$@\"");
            let daemon = site.spawn(site.through_shell(&script, options));
            wait_until("the socket is there", || site.socket().exists());
            let found = fs::symlink_metadata(site.socket()).unwrap();
            assert!(found.file_type().is_socket());
            assert_eq!(found.permissions().mode() & 0o777, mode, "umask {umask}");
            daemon.ready().stop();
        }
    }
}

/// The socket's group is what `--socket-group` says, by number.
#[test]
fn the_socket_s_group() {
    let site = many_jobs(1);
    let own = rustix::process::getegid().as_raw();
    let group = if own == 0 { 12_345 } else { own };
    let _daemon = site.start_with(&["--socket-group", &group.to_string()]);
    assert_eq!(fs::symlink_metadata(site.socket()).unwrap().gid(), group);
}
