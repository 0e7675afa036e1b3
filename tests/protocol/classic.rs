//! The classic protocol, byte for byte (spec 3), under both policies.

use crate::common::{Client, Daemon, Site, both_policies, wait_until};

const DEQUEUED: &str = "SELECT count(*) FROM queue WHERE is_dequeued <> 0";

/// A daemon with the jobs `alpha` and `bravo`.
fn two_jobs(options: &[&str]) -> (Site, Daemon) {
    let site = Site::new();
    site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
    let daemon = site.start_with(options);
    site.wait_count(2);
    (site, daemon)
}

/// Spec 3.1: lines sent in one write are all answered, in order, and the connection stays open
/// until the peer closes.
#[test]
fn lines_in_one_write_are_answered_in_order() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        let mut client = Client::connect(&site);
        client.write(b"READY\nDONE alpha 0\nREADY\n");
        assert_eq!(client.line(), "JOB alpha 0 1\n");
        assert_eq!(client.line(), "JOB bravo 0 2\n");
        assert_eq!(client.line(), "NOJOBS\n");
        assert_eq!(client.ask("DONE bravo 0"), "NOJOBS\n");
        client.half_close();
        assert_eq!(client.rest(), "");
    }
}

/// Spec 3.1: a thousand lines sent at once get a thousand answers in the order of the lines.
#[test]
fn a_thousand_pipelined_lines() {
    for options in both_policies() {
        let site = Site::new();
        let lines: Vec<String> = (0..1_000).map(|i| format!("key{i:04} 0 {i}\n")).collect();
        site.write("f.1.txt", lines.concat());
        let _daemon = site.start_with(options);
        site.wait_count(1_000);
        let started: Vec<String> =
            (0..1_000).map(|i| format!("('key{i:04}', {i}, {i}, 0)")).collect();
        site.edit(&format!("INSERT INTO log VALUES {}", started.join(",")));
        let answers: Vec<String> = lines.iter().map(|line| format!("JOB {line}")).collect();
        assert_eq!(site.send(&b"READY\n".repeat(1_000)), answers.concat());
    }
}

/// Lines that arrive one byte at a time are answered like any other.
#[test]
fn byte_by_byte() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        let mut client = Client::connect(&site);
        for byte in b"READY\nDONE alpha 0\n" {
            client.write(&[*byte]);
            // The daemon has had a turn when it has seen this connection's end.
            assert_eq!(site.send(b""), "");
        }
        assert_eq!(client.line(), "JOB alpha 0 1\n");
        assert_eq!(client.line(), "JOB bravo 0 2\n");
    }
}

/// Spec 3.2: a peer that closes its write side after full lines is still answered.
#[test]
fn half_closed_peers_are_answered() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        assert_eq!(site.send(b"READY\nREADY\nREADY\n"), "JOB alpha 0 1\nJOB bravo 0 2\nNOJOBS\n");
        assert_eq!(site.send(b""), "");
    }
}

/// Spec 3.3: what the reference accepts beside the plain lines.
#[test]
fn accepted_forms_of_done() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        site.edit("INSERT INTO log VALUES ('a', 1000, NULL, NULL)");
        let forms: [(&[u8], i64); 8] = [
            (b"DONE a 1", 1),
            (b"DONE a 2\r\n", 2),
            (b"DONE a 3 more words\n", 3),
            (b"DONE a +4\n", 4),
            (b"DONE a -5\n", -5),
            (b"DONE a 9223372036854775807\n", i64::MAX),
            (b"DONE a -9223372036854775808\n", i64::MIN),
            (b"DONE a 0\n", 0),
        ];
        for (line, code) in forms {
            let answer = site.send(line);
            assert!(answer.starts_with("JOB ") || answer == "NOJOBS\n", "{line:?}: {answer:?}");
            let stored = site.number("SELECT exit_code FROM log WHERE attr_path = 'a'");
            assert_eq!(stored, code, "{:?}", String::from_utf8_lossy(line));
        }
    }
}

/// A DONE for a key that nobody knows, also one too long to be a key, changes nothing and is
/// answered.
#[test]
fn done_for_an_unknown_key() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        assert_eq!(site.ask("DONE nobody 0"), "JOB alpha 0 1\n");
        let long = format!("DONE {} 0", "k".repeat(5_000));
        assert_eq!(site.ask(&long), "JOB bravo 0 2\n");
        let keys = site.sql("SELECT attr_path FROM log ORDER BY 1");
        assert_eq!(keys, ["alpha", "bravo"]);
    }
}

/// Lines that get no answer (spec 3.4), each with its newline.
fn refused_lines() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("carriage return", b"READY\r\n".to_vec()),
        ("trailing space", b"READY \n".to_vec()),
        ("lower case", b"ready\n".to_vec()),
        ("empty line", b"\n".to_vec()),
        ("leading space", b" READY\n".to_vec()),
        ("unknown verb", b"QUIT\n".to_vec()),
        ("opting in to nothing", b"JOB alpha 0\n".to_vec()),
        ("DONE alone", b"DONE\n".to_vec()),
        ("DONE without code", b"DONE a\n".to_vec()),
        ("two spaces", b"DONE  a 0\n".to_vec()),
        ("a word for a code", b"DONE a zero\n".to_vec()),
        ("a fraction", b"DONE a 1.5\n".to_vec()),
        ("hexadecimal", b"DONE a 0x10\n".to_vec()),
        ("too large", b"DONE a 9223372036854775808\n".to_vec()),
        ("too small", b"DONE a -9223372036854775809\n".to_vec()),
        ("a hundred digits", format!("DONE a {}\n", "9".repeat(100)).into_bytes()),
        ("no UTF-8", b"DONE \xff\xfe 0\n".to_vec()),
        ("a line of 64 KiB and more", [vec![b'x'; 65_537], b"\n".to_vec()].concat()),
        ("a DONE of 64 KiB and more", format!("DONE a 0 {}\n", "x".repeat(65_536)).into_bytes()),
        ("HTTP", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec()),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x0a\n".to_vec()),
        ("noise", (0..=255_u8).chain(*b"\n").collect()),
    ]
}

/// Spec 3.4: a bad line closes in silence and takes nothing from the queue; later lines of the
/// same write are dropped.
#[test]
fn bad_lines_close_in_silence() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        for (name, line) in refused_lines() {
            assert_eq!(site.send(&[&line[..], b"READY\n"].concat()), "", "{name}");
            assert_eq!(site.sql(DEQUEUED), ["0"], "{name}");
        }
        assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    }
}

/// Spec 3.4: good lines before a bad one in the same write are answered first.
#[test]
fn good_lines_before_a_bad_one_are_answered() {
    for options in both_policies() {
        let site = Site::new();
        let _daemon = site.start_with(options);
        for (name, line) in refused_lines() {
            let sent = [b"READY\nDONE c 0\n", &line[..], b"READY\n"].concat();
            assert_eq!(site.send(&sent), "NOJOBS\nNOJOBS\n", "{name}");
        }
        site.write("f.1.txt", "alpha 0 1\nbravo 0 2\n");
        site.wait_count(2);
        assert_eq!(site.send(b"READY\nready\nREADY\n"), "JOB alpha 0 1\n");
        assert_eq!(site.sql(DEQUEUED), ["1"]);
    }
}

/// Spec 3.4: READY without its newline, at the end of input, is not executed.
#[test]
fn an_unfinished_ready_is_not_executed() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        assert_eq!(site.send(b"READY"), "");
        assert_eq!(site.send(b"DONE a"), "");
        assert_eq!(site.send(b"READY\nREADY"), "JOB alpha 0 1\n");
        assert_eq!(site.sql(DEQUEUED), ["1"]);
    }
}

/// Lines of up to 64 KiB are read: the rest of a DONE is ignored, not refused.
#[test]
fn a_line_of_nearly_64_kib_is_read() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        let line = format!("DONE a 0 {}", "x".repeat(65_535 - 9));
        assert_eq!(line.len() + 1, 64 * 1024);
        assert_eq!(site.ask(&line), "JOB alpha 0 1\n");
    }
}

/// Spec 3.4: the log names the peer and the fault.
#[test]
fn a_bad_line_is_a_warning_that_names_the_peer() {
    for options in both_policies() {
        let (site, daemon) = two_jobs(options);
        assert_eq!(site.ask("ready"), "");
        let pid = std::process::id().to_string();
        wait_until("the warning is there", || !daemon.warnings(&[&pid, "ready"]).is_empty());
    }
}

/// The stock worker's protocol has no more words: a connection that says nothing new sees
/// nothing new, whatever it does wrong.
#[test]
fn only_classic_words_are_ever_sent() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        for words in ["HELP", "STATUS", "PING", "HELLO", "HELLO x", "TOUCH alpha", "FAIL alpha"] {
            let answer = site.ask(words);
            assert!(!answer.contains("JOB"), "{words}: {answer:?}");
            let may_opt_in = words.starts_with("HELLO") && options.is_empty();
            assert!(may_opt_in || answer.is_empty(), "{words}: {answer:?}");
        }
        assert_eq!(site.sql(DEQUEUED), ["0"]);
    }
}

/// A connection may stay open and silent; it is answered when it speaks.
#[test]
fn a_connection_stays_open_until_the_peer_closes() {
    for options in both_policies() {
        let (site, _daemon) = two_jobs(options);
        let mut kept = Client::connect(&site);
        assert_eq!(kept.ask("READY"), "JOB alpha 0 1\n");
        for _ in 0..100 {
            let _ = site.ask("DONE nobody 0");
        }
        assert_eq!(kept.ask("DONE alpha 0"), "NOJOBS\n");
    }
}

/// `NOJOBS` and `JOB` carry payloads byte for byte: a leading space, tabs, and text beyond
/// ASCII.
#[test]
fn payloads_arrive_byte_for_byte() {
    for options in both_policies() {
        let site = Site::new();
        site.write("f.1.txt", "é  8.06.16 https://x/?a=b&c\tname \u{1F600}\n");
        let _daemon = site.start_with(options);
        site.wait_count(1);
        let expected = "JOB é  8.06.16 https://x/?a=b&c\tname \u{1F600}\n";
        assert_eq!(site.ask("READY"), expected);
    }
}
