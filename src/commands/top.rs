//! `shiftboss top`: the queue on the terminal until the user quits, or one frame of it as text.

use std::io;

use super::printing::print;
use crate::exit::Failure;
use crate::terminal::can_redraw;
use crate::top::{self, Settings};

pub fn run(settings: Settings) -> Result<(), Failure> {
    if settings.once || !can_redraw(&io::stdout()) {
        return print(top::frame(&settings)?);
    }
    top::run(settings)
}
