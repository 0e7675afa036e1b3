//! Processes that create one spool at the same time (spec 5.1).

use super::common::{Site, wait_until};
use super::{assert_whole, listed};

const MAKERS: usize = 4;
const ROUNDS: usize = 20;
/// Makes the spool and puts an entry into it, when all are ready.
const SCRIPT: &str = "touch ready$1; until [ -e go ]; do :; done; \
    \"$0\" --durability none init s q && \"$0\" --durability none put s q --name e$1";

/// Four at once, again and again: each has a whole spool, and all their entries are in it.
#[test]
fn processes_create_at_once() {
    for _ in 0..ROUNDS {
        let site = Site::bare();
        let program = site.program().get_program().to_owned();
        let makers: Vec<_> = (0..MAKERS)
            .map(|me| {
                let mut shell = std::process::Command::new("sh");
                shell.args(["-c", SCRIPT]).arg(&program).arg(me.to_string());
                shell.stdin(std::process::Stdio::null()).current_dir(site.path("")).spawn().unwrap()
            })
            .collect();
        wait_until("all are ready", || {
            (0..MAKERS).all(|me| site.path(&format!("ready{me}")).exists())
        });
        std::fs::write(site.path("go"), "").unwrap();
        for mut maker in makers {
            assert!(maker.wait().unwrap().success());
        }
        assert_eq!(listed(&site, "q"), ["e0", "e1", "e2", "e3"]);
        assert_whole(&site);
    }
}
