//! `shiftboss tasks`: tasks by status, with the reason.

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::store::TasksWith;
use shiftboss_actors::store::answers::{Task, Tasks};

use super::target;
use super::text::{ago, columns, shown};
use crate::cli::ViewArguments;
use crate::exit::Failure;

/// Shows the tasks that are asked for.
pub fn run(arguments: &ViewArguments, asked: TasksWith) -> Result<(), Failure> {
    let target = target::find(arguments.target.clone(), arguments.config.as_deref())?;
    let now = SystemClock.now();
    let found = target::ask(&target.database, asked)?;
    target::warn_if_down(&target, arguments.json);
    target::show(&target, &found, arguments.json, |found| render(found, now))
}

fn render(found: &Tasks, now: i64) -> String {
    if found.tasks.is_empty() {
        return "No task has that status.\n".to_owned();
    }
    let row = |task: &Task| {
        let since = task.since.map_or("-".to_owned(), |since| ago(now - since));
        [shown(&task.key), shown(&task.fetcher), since, shown(&task.reason)]
    };
    let mut out = columns(["Key", "fetcher", "since", "reason"], found.tasks.iter().map(row));
    if found.truncated {
        out.push_str("There are more: give a larger -n.\n");
    }
    out
}
