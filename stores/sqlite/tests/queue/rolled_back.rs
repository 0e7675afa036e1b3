//! A batch that fails half-way: what is remembered of the store from batch to batch is what the store has.

use shiftboss_queue::operation::{
    Dispatched, JoinRelay, Lane, Leases, NoteFetcher, Operation, RegisterRun, Registered, Relayed,
    Relays, Request,
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
    let Ok(Dispatched::Job(attempt, _)) = queue.ask(lease()) else { panic!("alpha waits") };
    assert_eq!(queue.ask(Leases), Ok(vec![(attempt, 60)]));
}
