//! The terminal: taken over while a [`Screen`] lives, and given back as it was however that ends, by a panic too.

use std::io::{self, BufWriter, Stdout, stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use super::draw::draw;
use super::state::State;
use super::theme::Theme;

/// A frame is one write, as long as it is shorter.
const FRAME_BYTES: usize = 256 * 1024;

/// Whether the terminal is taken over. It is given back once: doing it again would move the cursor over what a panic said.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Stdout>>>,
}

impl Screen {
    pub fn enter() -> io::Result<Self> {
        restore_before_panics_are_told();
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, stdout()));
        let entered = execute!(stdout(), EnterAlternateScreen);
        let screen =
            entered.and_then(|()| Terminal::new(backend)).map(|terminal| Self { terminal });
        screen.inspect_err(|_| restore())
    }

    /// Draws a state, which is told how much there was room for. After a panic of another thread nothing is drawn.
    pub fn draw(&mut self, state: &mut State, theme: &Theme) -> io::Result<()> {
        if !IS_TAKEN.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut extent = state.extent;
        self.terminal.draw(|frame| extent = draw(frame, state, theme))?;
        state.extent = extent;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Whoever reads what a panic says reads it on the screen that he had before.
fn restore_before_panics_are_told() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let tell = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            tell(info);
        }));
    });
}

/// A terminal that is gone needs nothing.
fn restore() {
    if !IS_TAKEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}
