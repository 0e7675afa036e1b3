//! Complete files that were changed: the queue becomes what they list (spec 4, "Life").

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::random::Random;
use crate::common::sql::RUNS;
use crate::common::{Daemon, Site, wait_equal, wait_until};

/// The rows of one run as `key|payload|is_dequeued`.
const ROWS: &str = "SELECT attr_path, payload, is_dequeued FROM queue ORDER BY attr_path";
/// Runs whose rows may be more than their files list.
const STALE: &str = "SELECT count(*) FROM lists WHERE stale <> 0";
/// Runs whose files were compared with what was read of them, after they had rested.
const VERIFIED: &str = "SELECT count(*) FROM lists WHERE changed IS NOT NULL";

fn list(numbers: impl Iterator<Item = usize>, payload: &str) -> String {
    numbers.map(|number| format!("key{number:05} {payload}\n")).collect()
}

/// A daemon that has read `lines` lines as a complete file, one of which is out.
fn loaded(lines: usize) -> (Site, Daemon) {
    let site = Site::new();
    site.write("f.1.txt", list(0..lines, "old"));
    let daemon = site.start();
    site.wait_sql(RUNS, &["f|1|1"]);
    (site, daemon)
}

/// What `check` accepts and what `status` counts, of all files together.
fn checked_and_shown(site: &Site) -> (u64, u64) {
    let json = |arguments: &[&str]| -> Value {
        serde_json::from_slice(&site.run(arguments).stdout).unwrap()
    };
    let checked = json(&["check", "--json", site.input().to_str().unwrap()]);
    let shown = json(&["status", "--json"]);
    let lines = shown["fetchers"].as_array().unwrap().iter();
    let lines = lines.map(|fetcher| fetcher["lines"].as_u64().unwrap()).sum();
    (checked["accepted_lines"].as_u64().unwrap(), lines)
}

/// Edited in place to fewer lines: what it lists no longer leaves, what was handed out stays so,
/// payloads that changed are taken, and `check` and `status` agree.
#[test]
fn edited_to_fewer_lines() {
    let (site, daemon) = loaded(10);
    let out = site.next_key("READY").unwrap();
    let others = (0..10).map(|number| format!("key{number:05}")).filter(|key| *key != out);
    let kept: Vec<String> = others.take(2).collect();
    site.write("f.1.txt", format!("{out} new\n{} old\n{} new\n", kept[0], kept[1]));
    let mut rows = vec![format!("{out}|new|1"), format!("{}|old|0", kept[0])];
    rows.push(format!("{}|new|0", kept[1]));
    rows.sort();
    site.wait_sql(ROWS, &rows.iter().map(String::as_str).collect::<Vec<_>>());
    site.wait_sql(RUNS, &["f|1|1"]);
    assert_eq!(checked_and_shown(&site), (3, 3));
    site.wait_sql(VERIFIED, &["1"]);
    assert_eq!(site.sql(STALE), ["0"]);
    daemon.stop();
}

/// As long as its writer has the file open, truncated, the old rows stand: other files that were changed
/// later are done meanwhile.
#[test]
fn an_editor_that_truncates_first() {
    let (site, _daemon) = loaded(10);
    site.write("g.1.txt", "one 1\ntwo 2\n");
    site.wait_count(12);
    let mut editor = File::create(site.file("f.1.txt")).unwrap();
    for round in ["one 1\n", ""] {
        site.write("g.1.txt", round);
        let left = "SELECT count(*) FROM queue WHERE payload IN ('1', '2')";
        site.wait_sql(left, &[&round.lines().count().to_string()]);
        assert_eq!(site.number("SELECT count(*) FROM queue WHERE payload = 'old'"), 10);
    }
    editor.write_all(b"key00003 old\n").unwrap();
    drop(editor);
    site.wait_sql(ROWS, &["key00003|old|0"]);
}

/// Changed while no daemon ran, after a stop and after a kill: with fewer lines, and with as many bytes, and with its old time of
/// change.
#[test]
fn changed_while_down() {
    let texts = [list(5..9, "old"), list(100..110, "old")];
    for (round, text) in texts.into_iter().enumerate() {
        let (site, daemon) = loaded(10);
        site.wait_sql(VERIFIED, &["1"]);
        if round % 2 == 0 {
            daemon.stop();
        } else {
            daemon.kill();
        }
        let modified = fs::metadata(site.file("f.1.txt")).unwrap().modified().unwrap();
        site.write("f.1.txt", &text);
        let file = OpenOptions::new().write(true).open(site.file("f.1.txt")).unwrap();
        file.set_modified(modified).unwrap();
        drop(file);
        let _daemon = site.start();
        wait_listed(&site, "f", &text);
    }
}

mod sqlite {
    use super::*;

    /// A file whose times are the known ones is not opened at the start; one that was only touched is compared
    /// once, and nothing is written into the queue.
    #[test]
    fn unchanged_files_are_left_alone() {
        let (site, daemon) = loaded(10);
        site.wait_sql(VERIFIED, &["1"]);
        daemon.stop();
        site.edit("UPDATE rows SET payload = 'edited'");
        let daemon = site.start();
        site.write("g.1.txt", "one 1\n");
        site.wait_sql(VERIFIED, &["2"]);
        daemon.stop();
        let changed = "SELECT changed FROM lists ORDER BY 1 DESC LIMIT 1";
        let before = site.sql(changed);
        File::open(site.file("f.1.txt"))
            .unwrap()
            .set_modified(std::time::SystemTime::now())
            .unwrap();
        let daemon = site.start();
        wait_until("the touched file is known again", || site.sql(changed) != before);
        assert_eq!(site.number("SELECT count(*) FROM queue WHERE payload = 'edited'"), 10);
        assert!(!daemon.log().contains("reading it"), "{}", daemon.log());
    }
}

/// Killed while rows leave, again and again: it goes on after each start, and ends the same. Workers wait for
/// a step at most meanwhile.
#[test]
fn killed_while_rows_leave() {
    const LINES: usize = 6_000;
    let (site, mut daemon) = loaded(LINES);
    site.wait_sql(VERIFIED, &["1"]);
    let text = list((0..LINES).filter(|number| number % 30 == 0), "new");
    site.write("f.1.txt", &text);
    let count = || site.number("SELECT count(*) FROM queue");
    let mut out_and_listed = 0;
    for _ in 0..3 {
        let before = count();
        wait_until("rows leave", || count() < before || before == 200);
        let asked = Instant::now();
        let key = site.next_key("READY").expect("a job");
        assert!(asked.elapsed() < Duration::from_secs(2), "{:?}", asked.elapsed());
        out_and_listed += text.lines().filter(|line| line.starts_with(&format!("{key} "))).count();
        daemon.kill();
        daemon = site.start();
    }
    wait_listed(&site, "f", &text);
    assert_eq!(site.integrity(), ["ok"]);
    let counted = format!("200|{}", 200 - out_and_listed);
    site.wait_sql("SELECT rows, pending FROM lists", &[&counted]);
}

/// The rows that a text lists, as `key|payload`: the last payload of a key counts.
fn listed(text: &str) -> Vec<String> {
    let mut rows = std::collections::BTreeMap::new();
    for (key, payload) in text.lines().filter_map(|line| line.split_once(' ')) {
        rows.insert(key, payload);
    }
    rows.iter().map(|(key, payload)| format!("{key}|{payload}")).collect()
}

fn wait_listed(site: &Site, fetcher: &str, text: &str) {
    let sql = format!(
        "SELECT attr_path, payload FROM queue JOIN fetchers USING (fetcher_id)
         WHERE name = '{fetcher}' ORDER BY attr_path"
    );
    wait_equal(&format!("the rows of {fetcher}"), &listed(text), || {
        site.try_sql(&sql).unwrap_or_default()
    });
}

/// One random edit of a file; returns what it says then. The first line stays.
fn edit(site: &Site, name: &str, before: &str, random: &mut Random) -> String {
    let mut text = format!("{name}-first 1\n");
    let known: Vec<&str> = before.lines().skip(1).collect();
    let share = random.below(4);
    for line in known.iter().filter(|_| random.below(3) < share) {
        text.push_str(line);
        text.push('\n');
    }
    for _ in 0..random.below(6) {
        let (key, payload) = (random.below(40), random.below(3));
        text.push_str(
            ["faulty\n", &format!("{name}-{key} {payload}\n")][usize::from(random.below(9) > 0)],
        );
    }
    let file = format!("{name}.1.txt");
    match random.below(4) {
        0 => site.write(&file, &text),
        1 => {
            let mut writer = File::create(site.file(&file)).unwrap();
            let half = text.len() / 2;
            writer.write_all(&text.as_bytes()[..half]).unwrap();
            writer.write_all(&text.as_bytes()[half..]).unwrap();
        }
        2 => {
            site.write("elsewhere", &text);
            site.rename("elsewhere", &file);
        }
        _ => {
            let line = format!("{name}-{} {}\n", random.below(40), random.below(3));
            site.append(&file, &line);
            text = format!("{before}{line}");
        }
    }
    text
}

/// Random edits of many files, in place and by rename, with the daemon up, down and killed: in the end the
/// queue is what the files list, and what was handed out and never left is still so.
#[test]
fn random_edits() {
    const FILES: usize = 24;
    let (site, mut random) = (Site::new(), Random::seeded());
    let name = |file: usize| format!("f{file}");
    let mut texts: Vec<String> =
        (0..FILES).map(|file| format!("{}-first 1\n", name(file))).collect();
    for (file, text) in texts.iter().enumerate() {
        site.write(format!("{}.1.txt", name(file)), text);
    }
    let mut daemon = Some(site.start());
    site.wait_count(FILES);
    for _ in 0..FILES {
        assert!(site.next_key("READY").is_some());
    }
    for _ in 0..2 {
        for _ in 0..60 {
            let file = usize::try_from(random.below(FILES as u64)).unwrap();
            texts[file] = edit(&site, &name(file), &texts[file], &mut random);
            match (random.below(20), daemon.take()) {
                (0, Some(running)) => drop(running.stop()),
                (1, Some(running)) => running.kill(),
                (2..=6, None) => daemon = Some(site.start()),
                (8..=10, running) => {
                    crate::common::wait::pause(Duration::from_millis(random.below(400)));
                    daemon = running;
                }
                (_, running) => daemon = running,
            }
        }
        daemon = Some(daemon.unwrap_or_else(|| site.start()));
        for (file, text) in texts.iter().enumerate() {
            wait_listed(&site, &name(file), text);
        }
    }
    let first = "SELECT count(*) FROM queue WHERE attr_path LIKE '%-first' AND is_dequeued = 1";
    assert_eq!(site.number(first), FILES as i64);
    assert_eq!(site.integrity(), ["ok"]);
    let counts = "SELECT count(*) FROM lists AS run WHERE rows IS NOT (SELECT count(*)
        FROM queue WHERE queue.fetcher_id = run.fetcher_id)";
    assert_eq!(site.number(counts), 0);
}
