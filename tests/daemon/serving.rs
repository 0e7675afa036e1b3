//! What the reference's own tests assert of its daemon (statements 22 to 39 of spec 8), as far as no test of files, of the
//! protocol or of the engine asserts the same.

use crate::common::Site;

/// While the daemon was down a run was deleted, one replaced, and one appended to: rows and fetchers' ids are as if it had seen
/// that.
#[test]
fn statements_29_to_31_files_change_while_down() {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\n");
    site.write("g.1.txt", "bravo 0 2\n");
    site.write("h.1.txt.part", "charlie 0 3\ndel");
    let daemon = site.start();
    site.wait_count(3);
    let ids = "SELECT fetcher_id FROM fetchers WHERE name <> 'f' ORDER BY name";
    let before = site.sql(ids);
    daemon.stop();
    site.remove("f.1.txt");
    site.deliver("g", 2, "echo 0 5\n");
    site.append("h.1.txt.part", "ta 0 4\n");
    let _daemon = site.start();
    site.wait_queue(&["g|2|echo|0 5|0", "h|1|charlie|0 3|0", "h|1|delta|0 4|0"]);
    assert_eq!(site.sql(ids), before);
}

/// A line appended to a `.part` is available to the very next request, each time,
/// without a pause between write and request.
#[test]
fn statement_38_the_very_next_request_sees_it() {
    let (site, _daemon) = Site::running(&[]);
    for i in 0..300 {
        site.append("f.1.txt.part", format!("key{i} 0 {i}\n"));
        assert_eq!(site.ask("READY"), format!("JOB key{i} 0 {i}\n"));
    }
    assert_eq!(site.ask("READY"), "NOJOBS\n");
}
