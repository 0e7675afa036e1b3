//! A process of the reference at work in the same directory while one of ours dies, at each of its calls:
//! what the reference has taken stays with it, and what ours had comes back. The reference's system calls
//! are made here as it makes them.

use std::fs;
use std::path::PathBuf;

use super::operations::{Operation, ends};
use super::support::*;
use crate::*;

/// A process of the reference.
#[derive(Clone)]
struct Multispool(PathBuf);

impl Multispool {
    /// Takes `a`, if it is available in this queue: touched, then renamed.
    fn take(&self, queue: &str) -> bool {
        let (from, to) = (self.0.join(queue).join("a"), self.held(queue));
        let now = fs::FileTimes::new().set_modified(std::time::SystemTime::now());
        let touched = fs::File::options().write(true).open(&from).and_then(|it| it.set_times(now));
        touched.is_ok() && fs::rename(from, to).is_ok()
    }

    fn held(&self, queue: &str) -> PathBuf {
        self.0.join(queue).join(".checkout/a")
    }

    /// Removes what it took: the data first, the name last.
    fn remove(&self, queue: &str) {
        fs::remove_file(self.0.join(".data/a")).unwrap();
        fs::remove_file(self.held(queue)).unwrap();
        fs::remove_file(self.0.join(".registry/a")).unwrap();
    }
}

const QUEUES: [&str; 3] = ["in", "out", "dead-letter"];

/// What it is called, what others did before, what ours does.
type Case = (&'static str, fn(&Site), Operation);

/// What moves an entry, each with what others did to it before.
fn moves() -> Vec<Case> {
    fn died(site: &Site) {
        site.abandon("a", dead());
    }
    fn lent(site: &Site) {
        take(&site.load()).unwrap().detach(Some(std::time::Duration::ZERO)).unwrap();
    }
    fn failed(site: &Site) {
        take(&site.load()).unwrap().fail().unwrap();
    }
    let nothing: fn(&Site) = |_| ();
    let more: [Case; 5] = [
        ("release after a failure", failed, |s| take(s)?.release()),
        ("lend", nothing, |s| take(s)?.detach(Some(std::time::Duration::ZERO))),
        ("settle", lent, |s| s.resolve(&input(), &a())?.map_or(Ok(()), Guard::release)),
        ("reclaim of the dead", died, |s| s.reclaim().map(drop)),
        ("reclaim of what is due", lent, |s| s.reclaim().map(drop)),
    ];
    ends().into_iter().map(|(what, end)| (what, nothing, end)).chain(more).collect()
}

/// A spool with `a`, and a layer on it that dies at one of its calls, and before another lets the reference
/// take what it can.
fn scene(set_up: fn(&Site), dies_at: u64, taken_at: u64) -> (Site, std::sync::Arc<Faulty>) {
    let (site, spool) = Site::with_entry();
    QUEUES.iter().for_each(|it| spool.ensure_queue(&queue(it)).unwrap());
    set_up(&site);
    let layer = Faulty::of_changes(&site.path(), Fault::Die, dies_at);
    let other = Multispool(site.path());
    layer.before(taken_at, move || QUEUES.iter().for_each(|queue| _ = other.take(queue)));
    (site, layer)
}

/// What ours does about its dead: twice, for one may find what another left half-way.
fn look_after(site: &Site) -> Spool {
    let spool = site.load();
    spool.reclaim().unwrap();
    spool.reclaim().unwrap();
    spool.sweep().unwrap();
    spool
}

/// Death at every call that changes a name, the reference at work before each call until then, and after it.
#[test]
fn what_the_reference_has_taken_stays_with_it() {
    for (what, set_up, ours) in moves() {
        let calls = at_each_call(|dies_at| {
            let mut calls = 0;
            for taken_at in 1..=dies_at {
                let (site, layer) = scene(set_up, dies_at, taken_at);
                let options = options(Durability::None);
                let spool = Spool::on(layer.clone(), &site.path(), options, dead());
                let result = ours(&spool);
                drop(spool);
                calls = layer.calls();
                let case = format!("{what}: dead at {dies_at}, taken at {taken_at}: {result:?}");
                judge(&site, &case);
            }
            calls
        });
        assert!(calls > 4, "{what} makes {calls} calls");
    }
}

fn judge(site: &Site, case: &str) {
    let other = Multispool(site.path());
    let damaged = site.tree();
    let taken = QUEUES.into_iter().find(|it| other.take(it));
    // Of those that are held, ours may hold one itself: it says so in its note, and has it back below.
    let held = || QUEUES.into_iter().filter(|it| other.held(it).exists()).collect::<Vec<_>>();
    let before = held();
    let spool = look_after(site);
    let after = held();
    let available: Vec<_> =
        QUEUES.into_iter().filter(|it| site.file(it).join("a").exists()).collect();
    assert!(before.len() + available.len() <= 2, "{case}\n{damaged}");
    assert!(after.is_empty() || available.is_empty(), "{case}: in two hands\n{damaged}");
    if let Some(taken) = taken {
        assert!(after.contains(&taken), "{case}: taken away from the reference\n{damaged}");
        let resolved = spool.resolve(&queue(taken), &a());
        assert!(matches!(resolved, Err(SpoolError::Held { .. })), "{case}: {resolved:?}");
    }
    for queue in after {
        // Whatever ours has done, nobody of ours has it: it is the reference's until that ends it.
        other.remove(queue);
    }
    drop(spool);
    let spool = look_after(site);
    assert_whole(&spool);
    let counts = fs::read_dir(site.file(".shiftboss/attempts")).unwrap().count();
    assert!(counts <= available.len(), "{case}: {}\n{damaged}", site.tree());
}
