//! `shiftboss guardian`: the process that ends a killed shiftboss's commands. Hidden: shiftboss
//! starts it itself, through [`crate::child`].

use crate::child;
use crate::exit::{ExitCode, Failure};

/// Guards until the process that started it is gone.
pub fn run() -> Result<(), Failure> {
    child::guard(std::io::stdin()).map_err(Failure::of(ExitCode::Usage))
}
