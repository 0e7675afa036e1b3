//! A spool on a disk that is really full, of bytes or of files: its entries can be taken and removed.

use std::process::Command;

use super::common::Site;

/// Entries by hand, as scripts do it. `fill` leaves no room for a byte or a file.
const SCRIPT: &str = r#"
program=$1 kind=$2; shift 2
spool() { "$program" "$@"; }
if [ "$kind" = bytes ]; then
    mount -t tmpfs -o size=2m none disk
    fill() { cat /dev/zero >> disk/ballast 2>&- || true; }
else
    mount -t tmpfs -o size=64m,nr_inodes=100 none disk
    fill() { while touch disk/ballast$count 2>&-; do count=$((count + 1)); done; }
fi
count=0
spool init disk/s q
for name in a b c d e f; do echo data | spool put disk/s q --name $name --meta "$name 1"; done
fill
echo data | spool put disk/s q && exit 99
# Some was taken before it was filled up again, the rest is available.
[ "$(spool take disk/s q)" = a ]
fill
spool rm disk/s q a
fill
for name in b c d e f; do spool rm disk/s q $name; fill; done
[ -z "$(spool list disk/s q)" ]
rm disk/ballast*
spool fsck disk/s
echo data | spool put disk/s q --name g
[ "$(spool take disk/s q)" = g ]
"#;

fn is_emptied(kind: &str) {
    let site = Site::bare();
    std::fs::create_dir(site.path("disk")).unwrap();
    let namespaces = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    let mut command = Command::new("unshare");
    command.args([namespaces, "sh", "-exc", SCRIPT, "sh"]).arg(site.program().get_program());
    let output = command.arg(kind).current_dir(site.path("")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
}

#[test]
fn without_a_byte() {
    is_emptied("bytes");
}

#[test]
fn without_a_file() {
    is_emptied("files");
}
