//! What a test sees of an operation: a name, and what it was about.

use crate::store::{InputDirectory, Operation};
use shiftboss_protocol::model::Run;

/// The name of a call, and what it is about; none of what is asked all the time.
pub(super) fn describe(operation: &Operation) -> (&'static str, String) {
    use Operation as Op;
    match operation {
        Op::Dispatch(it) => {
            let holder = it.holder.as_ref().map(|holder| holder.worker.to_string());
            ("dispatch", holder.unwrap_or_default())
        }
        Op::Complete(it) => ("finish", format!("{} {}", it.key, it.exit_code)),
        Op::CompleteAttempt(it) => ("done", format!("{} {}", it.attempt.0, it.exit_code)),
        Op::Release(it) => ("release", it.0.0.to_string()),
        Op::Heartbeat(it) => ("heartbeat", it.0.0.to_string()),
        Op::Expire(it) => ("expire", it.0.0.to_string()),
        Op::Undo(it) => ("undo", it.attempt.0.to_string()),
        Op::Retry(it) => ("retry", it.key.to_string()),
        Op::Hold(it) => ("hold", it.key.to_string()),
        Op::Bump(it) => ("bump", it.key.to_string()),
        Op::Unhold(it) => ("unhold", it.0.to_string()),
        Op::Forget(it) => ("forget", it.0.to_string()),
        Op::EndHolds(_) => ("end holds", String::new()),
        Op::Requeue(it) => ("requeue", it.0.to_string()),
        Op::Drain(_) => ("drain", String::new()),
        Op::SetPaused(it) => ("pause", if it.0 { "yes" } else { "no" }.to_owned()),
        Op::RegisterRun(it) => ("register", it.0.to_string()),
        Op::AddRows(it) => ("add", format!("{} {}", it.0.run, it.0.rows.len())),
        Op::Prune(it) => ("prune", it.run.to_string()),
        Op::BeginDeletion(it) => ("mark", it.0.to_string()),
        Op::DeleteRuns(it) => ("delete", it.runs.first().map(Run::to_string).unwrap_or_default()),
        Op::RejectFile(it) => ("reject", it.name.clone()),
        Op::ForgetRejected(it) => ("forget rejected", it.0.clone()),
        Op::NoteInput(it) => {
            let lost = matches!(it.0, InputDirectory::Lost(_));
            ("lost", if lost { "yes" } else { "no" }.to_owned())
        }
        Op::AddTask(it) => ("add task", format!("{} {}", it.task.key, it.task.payload)),
        Op::CancelTasks(it) => ("cancel", it.0.to_string()),
        Op::AcceptEntries(it) => ("accept", it.0.len().to_string()),
        Op::ForgetAccepted(it) => ("forget accepted", it.0.name.to_string()),
        Op::NoteFetcher(it) => ("note_fetcher", it.0.name.to_string()),
        Op::ForgetFetcher(it) => ("forget_fetcher", it.0.to_string()),
        Op::JoinRelay(it) => ("join relay", it.name.to_string()),
        Op::Relayed(it) => ("relayed", it.number.to_string()),
        Op::Installation(_) => ("installation", String::new()),
        Op::Place(_) => ("place", String::new()),
        Op::AddRelayedRows(it) => ("relayed rows", it.0.len().to_string()),
        Op::LoseRelay(it) => ("lose relay", it.epoch.to_string()),
        Op::Relays(_) => ("relays", String::new()),
        Op::Probe(_) => ("probe", String::new()),
        Op::Runs(_) => ("runs", String::new()),
        Op::AcceptedEntries(_) => ("accepted", String::new()),
        Op::FetcherRecords(_) => ("fetcher_records", String::new()),
        Op::HasWork(_) => ("look", String::new()),
        Op::Leases(_) | Op::CountInFlight(_) | Op::WhyIdle(_) | Op::NextHoldEnd(_) => {
            ("", String::new())
        }
    }
}
