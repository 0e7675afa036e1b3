//! What a daemon notes beside the queue: rejected files, its input directory, managed fetchers.

use shiftboss_protocol::answers::{EndedRun, FetcherRecord};
use shiftboss_queue::documents::{FETCHER, INPUT, REJECTED};
use shiftboss_queue::file_identity::DirectoryIdentity;
use shiftboss_queue::operation::{
    FetcherRecords, ForgetFetcher, ForgetRejected, InputDirectory, Installation, NoteFetcher,
    NoteInput, Place, RejectFile,
};
use shiftboss_queue::records::Records;

use crate::asked::Asked;
use crate::words::{NOW, ready};

/// A note that goes on keeps its time, and gets the new reason.
#[test]
fn files_and_the_directory_are_noted() {
    let mut queue = Asked::with(&[]);
    let reject = |name: &str, reason: &str| RejectFile { name: name.into(), reason: reason.into() };
    queue.ask(reject("x", "old")).unwrap();
    queue.ask(reject("y", "why")).unwrap();
    queue.ask(NoteInput(InputDirectory::Lost("old".into()))).unwrap();
    queue.later(7);
    queue.ask(reject("x", "new")).unwrap();
    queue.ask(ForgetRejected("y".into())).unwrap();
    queue.ask(ForgetRejected("never heard of".into())).unwrap();
    queue.ask(NoteInput(InputDirectory::Lost("new".into()))).unwrap();
    let (queue, files) = queue.documents(REJECTED.name());
    let [(name, text)] = &files[..] else { panic!("{files:?}") };
    let (name, file) = REJECTED.read(name, text).unwrap();
    assert_eq!((&*name, &*file.reason, file.since), ("x", "new", NOW));
    let input = |queue: Asked| {
        let (queue, found) = queue.documents(INPUT.name());
        (queue, INPUT.read(INPUT.name(), &found[0].1).unwrap().1)
    };
    let (mut queue, noted) = input(queue);
    let lost = noted.lost.unwrap();
    assert_eq!((lost.since, &*lost.reason), (NOW, "new"));
    let identity = DirectoryIdentity { device: 1, inode: 2, born: Some(3) };
    queue.ask(NoteInput(InputDirectory::There(identity))).unwrap();
    let (_, noted) = input(queue);
    assert_eq!((noted.identity, noted.lost), (Some(identity), None));
}

/// A queue keeps its identity for ever; its place is that of its file.
#[test]
fn a_queue_is_known() {
    let mut queue = Asked::with(&[]);
    let known = queue.ask(Installation).unwrap();
    assert_eq!(known.len(), 16);
    assert_ne!(Asked::with(&[]).ask(Installation).unwrap(), known);
    let place = queue.ask(Place).unwrap();
    queue = queue.restart();
    assert_eq!(queue.ask(Installation).unwrap(), known);
    assert_eq!(queue.ask(Place).unwrap(), place);
}

/// A fetcher during its first run.
pub fn running(name: &str) -> FetcherRecord {
    let (state, run_started) = ("running".to_owned(), Some(90));
    FetcherRecord { name: name.into(), state, run_started, last_run: None, next_run: None }
}

/// The last note counts, also for the next daemon, until the fetcher is forgotten; a note that was edited into nonsense
/// is ignored.
#[test]
fn fetchers_are_noted() {
    let mut queue = Asked::with(&["alpha"]);
    let message = "7 lines, 0 faulty: f.100.txt".to_owned();
    let last_run = Some(EndedRun { started: 100, ended: 112, exit_code: 0, message });
    let idle = FetcherRecord { state: "idle".into(), last_run, ..running("f") };
    for record in [running("f"), running("a"), idle.clone()] {
        queue.ask(NoteFetcher(record)).unwrap();
    }
    queue = queue.restart();
    assert_eq!(queue.ask(FetcherRecords).unwrap(), [running("a"), idle.clone()]);
    queue.ask(ForgetFetcher("a".into())).unwrap();
    queue.ask(ForgetFetcher("never heard of".into())).unwrap();
    let Asked { engine, .. } = queue;
    let mut store = engine.into_store();
    ready(store.begin(&Default::default())).unwrap();
    ready(store.note(FETCHER.of("nonsense"), Some("{\"name\": 7".to_owned()))).unwrap();
    ready(store.commit()).unwrap();
    let mut queue = Asked::over(store);
    assert_eq!(queue.ask(FetcherRecords).unwrap(), [idle]);
    queue.ask(NoteFetcher(running("nonsense"))).unwrap();
    queue.ask(ForgetFetcher("f".into())).unwrap();
    assert_eq!(queue.ask(FetcherRecords).unwrap(), [running("nonsense")]);
    assert_eq!(queue.jobs(), ["alpha p"], "its lists stay");
}
