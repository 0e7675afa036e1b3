//! A batch that fails half-way: what is cached of the store from batch to batch still equals the store.

use shiftboss_protocol::model::Attempt;
use shiftboss_queue::operation::{
    Ack, CompleteAttempt, Dispatched, JoinRelay, Lane, Leases, NoteFetcher, Operation, RegisterRun,
    Registered, Relayed, Relays, Request,
};

use crate::asked::{Asked, lease, run};
use crate::notes::running;
use crate::subject;

fn fails<R: Request>(queue: &mut Asked, request: R) {
    assert!(subject::refuse(queue.engine.store(), true));
    assert!(queue.ask(request).is_err());
    assert!(subject::refuse(queue.engine.store(), false));
}

fn join(name: &str) -> JoinRelay {
    JoinRelay { name: name.into(), process: "p".into(), installation: None }
}

#[test]
fn what_failed_has_not_happened() {
    let mut queue = Asked::with(&["alpha"]);
    let epoch = queue.ask(join("r")).unwrap().epoch;
    let relayed = |number, operation| {
        let operations = vec![operation];
        Relayed { epoch, lane: Lane::Jobs, number, operations }
    };
    fails(&mut queue, join("s"));
    fails(&mut queue, relayed(1, Operation::Dispatch(lease())));
    fails(&mut queue, relayed(1, Operation::RegisterRun(RegisterRun(run("g", 1)))));
    fails(&mut queue, NoteFetcher(running("a")));
    let known = queue.ask(Relays).unwrap();
    assert_eq!(known.iter().map(|it| (&*it.name, it.epoch)).collect::<Vec<_>>(), [("r", epoch)]);
    assert!(
        matches!(queue.ask(RegisterRun(run("g", 1))), Ok(Registered::Run(_))),
        "it is nobody's"
    );
    let Ok(Dispatched::Job(attempt, _, _)) = queue.ask(lease()) else { panic!("alpha waits") };
    assert_eq!(queue.ask(Leases), Ok(vec![(attempt, 60)]));
}

/// The same for the cached jobs that are out: this batch fails when its records are already written.
#[test]
fn a_job_of_a_batch_that_failed_is_not_out() {
    let mut queue = Asked::with(&["alpha"]);
    let execute =
        |queue: &Asked, sql| queue.engine.store().connection().execute_batch(sql).unwrap();
    execute(
        &queue,
        "CREATE TEMP TRIGGER fails BEFORE INSERT ON main.header BEGIN SELECT RAISE(ABORT, 'it fails'); END",
    );
    assert!(queue.ask(lease()).is_err());
    execute(&queue, "DROP TRIGGER fails");
    let done = CompleteAttempt { attempt: Attempt(1), exit_code: 0 };
    assert_eq!(queue.ask(done), Ok(Ack::Unknown));
    assert!(matches!(queue.ask(lease()), Ok(Dispatched::Job(..))));
}
