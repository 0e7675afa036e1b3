//! The terminal: taken over while a [`Screen`] lives, and given back as it was however that ends, by a panic too.

use std::io::{self, BufWriter, Write, stdout};
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

use super::draw::draw;
use super::state::State;
use super::theme::Theme;
use crate::terminal;

/// A frame is one write, as long as it is shorter.
const FRAME_BYTES: usize = 256 * 1024;

/// Columns and rows if the terminal does not report them, and the most: each cell takes memory.
const SIZE: (u16, u16) = (80, 24);
const SIZE_MAX: (u16, u16) = (1_000, 500);

/// Whether the terminal is taken over. It is given back once: doing so again would move the cursor over a panic's
/// message.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

/// The terminal's end is not returned as an error of a write, but noted here: the library would print it.
static IS_GONE: AtomicBool = AtomicBool::new(false);

struct Tty;

impl Write for Tty {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut out = stdout().lock();
        if out.write_all(bytes).and_then(|()| out.flush()).is_err() {
            IS_GONE.store(true, Ordering::SeqCst);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub struct Screen {
    terminal: Terminal<CrosstermBackend<BufWriter<Tty>>>,
    area: Rect,
}

impl Screen {
    pub fn enter() -> io::Result<Self> {
        restore_before_panics_are_told();
        enable_raw_mode()?;
        IS_TAKEN.store(true, Ordering::SeqCst);
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, Tty));
        let entered = execute!(stdout(), EnterAlternateScreen);
        let area = area(Rect::new(0, 0, SIZE.0, SIZE.1));
        // With an explicit size: if the terminal does not report it, the library would run a program to find it.
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        let terminal = entered.and_then(|()| Terminal::with_options(backend, options));
        let screen = terminal.map(|terminal| Self { terminal, area });
        screen.inspect_err(|_| restore())
    }

    /// Draws a state, and notes in it how much there was room for. After a panic of another thread nothing is drawn.
    /// Whether the terminal is still there.
    pub fn draw(&mut self, state: &mut State, theme: &Theme) -> io::Result<bool> {
        if IS_TAKEN.load(Ordering::SeqCst) {
            let area = area(self.area);
            if area != self.area {
                self.terminal.resize(area)?;
                self.area = area;
            }
            let mut extent = state.extent;
            self.terminal.draw(|frame| extent = draw(frame, state, theme))?;
            state.extent = extent;
        }
        Ok(!IS_GONE.load(Ordering::SeqCst))
    }
}

/// The area to draw on; the same as before, if the terminal does not report its size.
fn area(before: Rect) -> Rect {
    let (width, height) = terminal::size().unwrap_or((before.width, before.height));
    Rect::new(0, 0, width.min(SIZE_MAX.0), height.min(SIZE_MAX.1))
}

/// Gives the terminal back without drawing: it no longer takes output, and the end must not wait.
pub fn abandon() {
    let _ = disable_raw_mode();
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the normal screen before a panic's message is printed.
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
