//! `work --fetcher`: workers that take the tasks of some fetchers alone.

use super::{jobs, run};
use crate::common::Site;
use crate::common::left::lines;
use crate::common::said::said;

/// Each gets what is of its fetchers, and is told whose it is and which try; the rest is left, and said to be.
#[test]
fn each_takes_what_is_of_its_fetchers() {
    let (site, _daemon) = Site::running(&[]);
    site.write("f.1.txt", jobs(3));
    site.write("g h.1.txt", "k0 other\nx 1\n");
    said(&site, &["add", "-t", "socket", "single", "1"]);
    let script = "echo \"$SHIFTBOSS_KEY $SHIFTBOSS_FETCHER $SHIFTBOSS_RETRY\" >> told";
    let options = ["--once", "--fetcher", "g h", "--fetcher", "@tasks"];
    let (code, _, log) = run(&site, &options, script);
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("Tasks wait for workers of other fetchers."), "{log}");
    let mut told = lines(&site, "told");
    told.sort();
    assert_eq!(told, ["k0 g h 1/1", "single @tasks 1/4", "x g h 1/1"]);
    let (code, _, log) = run(&site, &["--once", "--fetcher", "f"], script);
    assert_eq!((code, lines(&site, "told").len()), (Some(0), 6), "{log}");
    let (code, _, log) = run(&site, &["--once", "--fetcher", "none"], script);
    assert_eq!((code, lines(&site, "told").len()), (Some(0), 6), "{log}");
}
