//! How a test sees a call of the mock store: a name, and what it was about.

use shiftboss_protocol::model::Run;
use shiftboss_queue::operation::{InputDirectory, Operation};

/// The name of a call, and what it is about, as far as tests need it.
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
        Op::Stop(it) => ("stop", it.0.to_string()),
        Op::Stops(_) => ("stops", String::new()),
        Op::Expire(it) => ("expire", it.0.0.to_string()),
        Op::Undo(it) => ("undo", it.attempt.0.to_string()),
        Op::Drain(_) => ("drain", String::new()),
        Op::SetPaused(it) => ("pause", yes_or_no(it.0)),
        Op::RegisterRun(it) => ("register", it.0.to_string()),
        Op::AddRows(it) => ("add", format!("{} {}", it.0.run, it.0.rows.len())),
        Op::BeginDeletion(it) => ("mark", it.0.to_string()),
        Op::DeleteRuns(it) => ("delete", it.runs.first().map(Run::to_string).unwrap_or_default()),
        Op::RejectFile(it) => ("reject", it.name.clone()),
        Op::ForgetRejected(it) => ("forget rejected", it.0.clone()),
        Op::NoteInput(it) => ("lost", yes_or_no(matches!(it.0, InputDirectory::Lost(_)))),
        Op::NoteFetcher(it) => ("note_fetcher", it.0.name.to_string()),
        Op::FetcherRecords(_) => ("fetcher_records", String::new()),
        Op::Runs(_) => ("runs", String::new()),
        Op::HasWork(_) => ("look", String::new()),
        _ => Default::default(),
    }
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}
