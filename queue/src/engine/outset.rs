//! What a batch will ask for, derived from its operations: a store finds that in one step.

use crate::operation::{
    AddRows, AddTask, AskFor, Bump, CancelTasks, Complete, CompleteAttempt, Expire, Forget,
    Heartbeat, Hold, Operation, Release, Requeue, Retry, Stop, Undo, Unhold,
};
use crate::records::{Name, Outset};

pub(super) fn of(batch: &[Operation]) -> Outset {
    let mut outset = Outset {
        names: Vec::with_capacity(batch.len()),
        only_reads: !batch.is_empty() && batch.iter().all(saves_nothing),
        ..Outset::default()
    };
    batch.iter().for_each(|operation| note(operation, &mut outset));
    outset
}

/// It only reads, and does not note its findings either, unlike for [jobs handed out while a clock was
/// ahead](crate::rules::leases).
fn saves_nothing(operation: &Operation) -> bool {
    match operation {
        Operation::Relayed(it) => it.operations.iter().all(saves_nothing),
        Operation::Leases(_) => false,
        operation => operation.only_reads(),
    }
}

fn note(operation: &Operation, outset: &mut Outset) {
    use Operation as Op;
    let mut of_key =
        |key: &shiftboss_protocol::model::Key| outset.names.push(Name::Key(key.clone()));
    match operation {
        Op::Dispatch(_) => outset.next += 1,
        // Looks that each daemon repeats often must not block other daemons.
        Op::HasWork(_) | Op::NextHoldEnd(_) | Op::NextOpening(_) | Op::Stops(_) => {}
        Op::CompleteAttempt(CompleteAttempt { attempt, .. })
        | Op::Release(Release(attempt))
        | Op::Heartbeat(Heartbeat(attempt))
        | Op::AskFor(AskFor { attempt, .. })
        | Op::Expire(Expire(attempt))
        | Op::Undo(Undo { attempt, .. }) => outset.names.push(Name::Attempt(*attempt)),
        // It does not make an unknown key known.
        Op::Complete(Complete { key, .. }) => of_key(key),
        Op::Relayed(it) => {
            // No other daemon may carry out the same number at the same time.
            outset.is_alone |= !operation.only_reads();
            it.operations.iter().for_each(|operation| note(operation, outset));
        }
        on_key => {
            outset.is_alone = true;
            outset.counts |= !matches!(
                on_key,
                Op::RegisterRun(_) | Op::AddRows(_) | Op::AddRelayedRows(_) | Op::BeginDeletion(_)
            );
            match on_key {
                Op::Requeue(Requeue(key))
                | Op::Stop(Stop(key))
                | Op::Retry(Retry { key, .. })
                | Op::Hold(Hold { key, .. })
                | Op::Unhold(Unhold(key))
                | Op::Bump(Bump { key, .. })
                | Op::Forget(Forget(key))
                | Op::CancelTasks(CancelTasks(key)) => of_key(key),
                Op::AddTask(AddTask { task, id }) => {
                    of_key(&task.key);
                    outset.names.extend(id.iter().cloned().map(Name::TaskId));
                }
                Op::AddRows(AddRows(batch)) => batch.rows.iter().for_each(|row| of_key(&row.key)),
                Op::AddRelayedRows(it) => {
                    it.0.iter().flat_map(|it| &it.rows).for_each(|row| of_key(&row.key));
                }
                _ => {}
            }
        }
    }
}
