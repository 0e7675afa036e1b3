//! A disk that is really full: a small file system that only one daemon and its children see.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{Daemon, Site};

/// A daemon whose database is on a disk as `script` makes it (`disk`, in the site's directory; "$@" is the
/// daemon's command line).
pub fn on_a_small_disk(site: &Site, script: &str, options: &[&str]) -> Daemon {
    fs::create_dir(site.path("disk")).unwrap();
    let mut probe = unshare();
    let usable = probe.args(["true"]).stderr(Stdio::null()).status();
    let usable = usable.is_ok_and(|status| status.success());
    assert!(
        usable,
        "this test needs `unshare` and private mounts: be root, or allow user name spaces"
    );
    let serve = site.program();
    let mut command = unshare();
    command.args(["sh", "-c", script, "sh"]).arg(serve.get_program()).arg("serve");
    command.arg(site.path("disk/state.db")).args([site.input(), site.socket()]).args(options);
    command.current_dir(site.path("")).stdin(Stdio::null());
    site.spawn(command).ready()
}

/// A new mount namespace; with one of users around it where that is needed.
fn unshare() -> Command {
    let mut command = Command::new("unshare");
    let namespaces = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    command.arg(namespaces);
    command
}

/// The small disk as it is seen from outside.
pub fn seen(site: &Site, daemon: &Daemon) -> PathBuf {
    let root = PathBuf::from(format!("/proc/{}/root", daemon.pid().as_raw_nonzero()));
    root.join(site.path("disk").strip_prefix("/").unwrap())
}
