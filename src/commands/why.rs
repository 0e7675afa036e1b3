//! `shiftboss why`: where a key is, and why it is not the next one.

mod text;

use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_actors::store::WhyKey;

use super::target;
use super::text::shown;
use crate::cli::ViewArguments;
use crate::exit::{ExitCode, Failure};

pub fn run(arguments: &ViewArguments, key: &str) -> Result<(), Failure> {
    let target = target::find(arguments.target.clone(), arguments.config.as_deref())?;
    let now = SystemClock.now();
    let found = target::ask(&target.database, WhyKey(key.to_owned()))?;
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
