//! What commands print on standard output: a text, or one line of JSON.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

use crate::exit::{ExitCode, Failure};

pub fn print(text: impl AsRef<[u8]>) -> Result<(), Failure> {
    offer(text).map(drop)
}

/// Prints a whole text; returns whether there is still a reader. A reader that is gone (`shiftboss check DIR | head`)
/// has what it wanted: the command ends quietly, with success.
pub fn offer(text: impl AsRef<[u8]>) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => {
            let message = format!("cannot write to standard output: {error}");
            Err(Failure::new(ExitCode::StoreIo, message))
        }
    }
}

pub fn json(object: &impl Serialize) -> Result<String, Failure> {
    let line = serde_json::to_string(object).map_err(Failure::of(ExitCode::Internal))?;
    Ok(line + "\n")
}

/// Prints what was found: the JSON object, or the text that `render` makes of it. Returns whether there is still a
/// reader.
pub fn show<T: Serialize>(
    found: &T,
    as_json: bool,
    render: impl FnOnce(&T) -> String,
) -> Result<bool, Failure> {
    offer(if as_json { json(found)? } else { render(found) })
}
