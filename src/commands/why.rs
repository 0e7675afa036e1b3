//! `shiftboss why`: where a key is, and why it is not the next one.

mod text;

use shiftboss_actors::clock::{Clock, SystemClock};

use super::text::shown;
use super::{target, view_failure};
use crate::cli::ViewArguments;
use crate::exit::{ExitCode, Failure};
use crate::stores::sqlite::views::why;

pub fn run(arguments: &ViewArguments, key: &str) -> Result<(), Failure> {
    let target = target::find(arguments.target.clone(), arguments.config.as_deref())?;
    let now = SystemClock.now();
    let found = why(&target.database, key, now).map_err(|error| view_failure(&error))?;
    let Some(found) = found else {
        let text = format!(
            "nothing is known of the key {}: no list and no spool has it now, and it never ran; is it spelled right?",
            shown(key)
        );
        return Err(Failure::new(ExitCode::BadData, text));
    };
    target::warn_if_down(&target, arguments.json);
    target::show(&target, &found, arguments.json, |found| text::render(found, now))
}
