//! Several processes that are killed at random: nothing that was acknowledged is lost, and nothing is
//! worked on twice but after the death of who had it.
//!
//! The processes are this test's own binary, run again with a role in its environment.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::support::*;
use crate::*;

const KILLS: u32 = 200;
const ROLES: [&str; 8] =
    ["produce", "produce", "produce", "produce", "first", "first", "second", "second"];
const ROLE: &str = "SHIFTBOSS_TEST_SPOOL_ROLE";

/// The processes' part. Does nothing as a test.
#[test]
fn role() {
    let Ok(text) = std::env::var(ROLE) else { return };
    let [role, id, path] = text.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
    let base = Path::new(path);
    let spool = Spool::load(&base.join("spool"), options(Durability::None)).unwrap();
    match role {
        "produce" => produce(&spool, base, id),
        "first" => consume(&spool, base, id, "in", Some("out")),
        _ => consume(&spool, base, id, "out", None),
    }
}

/// One line, at once.
fn note(base: &Path, file: &str, line: &str) {
    let mut options = std::fs::File::options();
    let mut file = options.append(true).create(true).open(base.join(file)).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

fn produce(spool: &Spool, base: &Path, id: &str) {
    for number in 0.. {
        let entry = named(&format!("e{id}-{number:06}"));
        // Not more than the consumers can do, who are slower.
        if spool.list(&queue("in")).unwrap().len() > 100 {
            let _ = Stop::new().unwrap().wait(Duration::from_millis(1));
            continue;
        }
        let name = spool.enqueue(&queue("in"), entry, &Item::new(id, id)).unwrap();
        note(base, "acknowledged", &name.to_string());
    }
}

fn consume(spool: &Spool, base: &Path, id: &str, from: &str, to: Option<&str>) {
    let mut reader = spool.reader(&queue(from), Order::Spread).unwrap();
    let stop = Stop::new().unwrap();
    while !base.join("over").exists() {
        let limit = Some(Duration::from_millis(100));
        let Some(guard) = reader.dequeue(&stop, limit).unwrap() else { continue };
        note(base, "worked", &format!("{from} {} {id}", guard.name()));
        assert_eq!(guard.data().load().unwrap(), guard.metadata());
        match to {
            Some(to) => guard.move_to(&queue(to)).unwrap(),
            None => guard.complete().unwrap(),
        }
    }
}

struct Crew {
    base: std::path::PathBuf,
    children: Vec<(&'static str, u32, Child)>,
    next: u32,
    killed: HashSet<u32>,
}

impl Crew {
    fn start(&mut self, role: &'static str) {
        let id = self.next;
        self.next += 1;
        let mut command = Command::new(std::env::current_exe().unwrap());
        let child = command
            .args(["--exact", "tests::processes::role"])
            .env(ROLE, format!("{role} {id} {}", self.base.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.children.push((role, id, child));
    }

    fn kill(&mut self, index: usize) -> &'static str {
        let (role, id, mut child) = self.children.remove(index);
        assert!(child.try_wait().unwrap().is_none(), "{role} {id} ended by itself");
        self.killed.insert(id);
        child.kill().unwrap();
        child.wait().unwrap();
        role
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.children.iter_mut().for_each(|(_, _, child)| {
            let _ = child.kill();
            let _ = child.wait();
        });
    }
}

fn lines(base: &Path, file: &str) -> Vec<String> {
    let text = std::fs::read_to_string(base.join(file)).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Two hundred kills among four producers and four consumers of two queues.
#[test]
fn two_hundred_kills() {
    let site = Site::new();
    let spool = site.create();
    let base = site.directory.path().to_owned();
    let mut crew =
        Crew { base: base.clone(), children: Vec::new(), next: 0, killed: HashSet::new() };
    ROLES.iter().for_each(|role| crew.start(role));
    let pause = Stop::new().unwrap();
    for _ in 0..KILLS {
        let random = files::random();
        let _ = pause.wait(Duration::from_millis(random % 50));
        let role = crew.kill((random >> 32) as usize % crew.children.len());
        crew.start(role);
    }
    while let Some(index) = crew.children.iter().position(|(role, ..)| *role == "produce") {
        crew.kill(index);
    }
    let is_empty = |queue: &QueueName| {
        spool.list(queue).unwrap().is_empty() && spool.list_checkouts(queue).unwrap().is_empty()
    };
    // What is on its way from one place to the next, maybe since its consumer's death, is in none of them.
    let (acknowledged, registry) = (lines(&base, "acknowledged"), site.path().join(".registry"));
    let are_gone = || acknowledged.iter().all(|name| !registry.join(name).exists());
    // Without a repair: the living take back what the dead had.
    wait_until("all is worked", || is_empty(&queue("in")) && is_empty(&queue("out")) && are_gone());
    std::fs::write(base.join("over"), "").unwrap();
    for (role, id, mut child) in std::mem::take(&mut crew.children) {
        assert!(child.wait().unwrap().success(), "{role} {id}");
    }
    judge(&spool, &base, &crew.killed);
}

fn judge(spool: &Spool, base: &Path, killed: &HashSet<u32>) {
    let acknowledged = lines(base, "acknowledged");
    let mut workers: HashMap<(String, String), Vec<u32>> = HashMap::new();
    for line in lines(base, "worked") {
        let [queue, name, id] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        workers.entry((queue.into(), name.into())).or_default().push(id.parse().unwrap());
    }
    for name in &acknowledged {
        assert!(workers.contains_key(&("out".to_owned(), name.clone())), "{name} is lost");
    }
    let mut again = 0;
    for (entry, ids) in &workers {
        let (_, before) = ids.split_last().unwrap();
        again += before.len();
        assert!(before.iter().all(|id| killed.contains(id)), "{entry:?} was worked by {ids:?}");
    }
    let repaired = repair(spool);
    assert!(repaired.is_mended(), "{repaired:#?}");
    assert_whole(spool);
    let (entries, mended) = (acknowledged.len(), repaired.findings.len());
    println!("{entries} acknowledged, {again} worked again after a death, {mended} mended");
    assert!(entries > 500, "{entries}");
}
