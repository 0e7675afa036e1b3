//! The classic protocol over the socket (spec 3), under both policies. Which lines there are the codec's own tests say.

use crate::common::{Client, Site, both_policies, wait_until};

const DEQUEUED: &str = "SELECT count(*) FROM queue WHERE is_dequeued <> 0";
const TWO_JOBS: &str = "alpha 0 1\nbravo 0 2\n";

/// Spec 3.1 and 3.2: lines sent in one write are all answered, in order, and the connection stays open until the peer closes;
/// one that closes its write side is answered first.
#[test]
fn lines_in_one_write_are_answered_in_order() {
    for options in both_policies() {
        let (site, _daemon) = Site::serving(TWO_JOBS, options);
        let mut client = Client::connect(&site);
        client.write(b"READY\nDONE alpha 0\nREADY\n");
        assert_eq!(client.line(), "JOB alpha 0 1\n");
        assert_eq!(client.line(), "JOB bravo 0 2\n");
        assert_eq!(client.line(), "NOJOBS\n");
        assert_eq!(client.ask("DONE bravo 0"), "NOJOBS\n");
        client.half_close();
        assert_eq!(client.rest(), "");
        let answers = site.send(&b"DONE nobody 0\n".repeat(200));
        assert_eq!(answers, "NOJOBS\n".repeat(200));
    }
}

/// Spec 3.3: a code is stored whatever number it is.
#[test]
fn limits_of_exit_codes() {
    let (site, _daemon) = Site::serving(TWO_JOBS, &[]);
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    for code in [i64::MAX, i64::MIN] {
        assert!(site.ask(&format!("DONE alpha {code}")).ends_with('\n'));
        let stored = site.number("SELECT exit_code FROM log WHERE attr_path = 'alpha'");
        assert_eq!(stored, code);
    }
}

/// A DONE for a key that nobody knows, also one too long to be a key, changes nothing and is
/// answered.
#[test]
fn done_for_an_unknown_key() {
    for options in both_policies() {
        let (site, _daemon) = Site::serving(TWO_JOBS, options);
        assert_eq!(site.ask("DONE nobody 0"), "JOB alpha 0 1\n");
        let long = format!("DONE {} 0", "k".repeat(5_000));
        assert_eq!(site.ask(&long), "JOB bravo 0 2\n");
        let keys = site.sql("SELECT attr_path FROM log ORDER BY 1");
        assert_eq!(keys, ["alpha", "bravo"]);
    }
}

/// Spec 3.4: a bad line, also one of other protocols or without its end, closes in silence and takes nothing from the queue;
/// good lines before it are answered, later ones dropped. The log names the peer and the fault.
#[test]
fn bad_lines_close_in_silence() {
    for options in both_policies() {
        let (site, daemon) = Site::serving(TWO_JOBS, options);
        for line in [
            &b"ready\n"[..],
            b"DONE a zero\n",
            b"DONE \xff\xfe 0\n",
            b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x0a\n",
            &[&[b'x'; 65_537][..], b"\n"].concat(),
            b"STATUS\n",
        ] {
            assert_eq!(site.send(&[line, b"READY\n"].concat()), "", "{line:?}");
        }
        assert_eq!(site.send(b"READY"), "");
        assert_eq!(site.sql(DEQUEUED), ["0"]);
        assert_eq!(site.send(b"READY\nready\nREADY\n"), "JOB alpha 0 1\n");
        assert_eq!(site.sql(DEQUEUED), ["1"]);
        let pid = std::process::id().to_string();
        wait_until("the warning is there", || !daemon.warnings(&[&pid, "ready"]).is_empty());
    }
}

/// `JOB` carries payloads byte for byte: a leading space, tabs, and text beyond ASCII.
#[test]
fn payloads_arrive_byte_for_byte() {
    let line = "é  8.06.16 https://x/?a=b&c\tname \u{1F600}\n";
    let (site, _daemon) = Site::serving(line, &[]);
    assert_eq!(site.ask("READY"), format!("JOB {line}"));
}
