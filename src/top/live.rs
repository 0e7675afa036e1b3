//! The loop of a terminal: keys come from a thread that waits for them, pictures from one that asks the queue; here they meet the
//! state, and the state is drawn. Nothing here waits for the queue.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::Duration;

use ratatui::crossterm::event::{Event as Typed, KeyCode, KeyModifiers, read};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::look::Looker;
use super::orders::{self, Order};
use super::picture::View;
use super::screen::{self, Screen};
use super::state::{Abilities, Effect, Event, State};
use super::tabs::Tab;
use super::theme::Theme;
use crate::cli::TopArguments;
use crate::exit::{ExitCode, Failure};
use crate::program::with_signals;
use crate::terminal::has_colours;

const EVENTS_MAX: usize = 256;
/// From a signal to the end, whatever the terminal does.
const STOP_MAX: Duration = Duration::from_secs(1);

enum Ask {
    /// To look at this from now on, at this interval.
    Look(View, Duration),
    Tell(Order),
}

/// What comes from a thread; `None`: it ended, by a panic.
type Sent = Option<Event>;

/// Shows the queue until the user quits, or a signal asks for the end.
pub fn run(typed: TopArguments) -> Result<(), Failure> {
    let TopArguments { target, interval, ascii, read_only, log_dir, .. } = typed;
    let abilities = Abilities { may_change: !read_only, has_outputs: log_dir.is_some() };
    let mut looker = Looker::new(target, log_dir);
    // A mistyped target is reported on the normal screen.
    let picture = looker.look(&View { tabs: vec![Tab::Fetchers], detail: None })?;
    let state = State::new(picture, interval, abilities);
    let theme = Theme::new(has_colours(&io::stdout()), ascii);
    with_signals(async |mut signals| {
        let (sender, mut events) = mpsc::channel(EVENTS_MAX);
        let (asks, asked) = channel();
        let first = Ask::Look(state.view(), interval);
        let screen = Screen::enter().map_err(unusable)?;
        start("keys", &sender, type_on)?;
        start("look", &sender, move |events| look_on(looker, first, &asked, events))?;
        let (end, mut ended) = oneshot::channel();
        // On another thread than the signals: a terminal may be stopped (Ctrl-S, a connection that hangs), and then the
        // thread that draws hangs, too.
        start("screen", &sender, move |_| {
            drop(end.send(show(screen, state, &theme, &mut events, &asks)));
        })?;
        let shown = tokio::select! {
            shown = &mut ended => Ok(shown),
            // A signal asks for the end, as `q` does.
            _ = signals.next() => {
                let _ = sender.try_send(Some(Event::Stop));
                timeout(STOP_MAX, ended).await
            }
        };
        let Ok(shown) = shown else {
            screen::abandon();
            return Ok(());
        };
        shown.unwrap_or_else(|_| Err(bug()))
    })
}

/// Draws, and takes what comes, until the user quits or the terminal is gone.
fn show(
    mut screen: Screen,
    mut state: State,
    theme: &Theme,
    events: &mut mpsc::Receiver<Sent>,
    asks: &Sender<Ask>,
) -> Result<(), Failure> {
    while screen.draw(&mut state, theme).map_err(unusable)? {
        let mut next = events.blocking_recv();
        // Whatever waits is taken before the next frame.
        while let Some(event) = next {
            let Some(event) = event else { return Err(bug()) };
            match state.update(event) {
                Some(Effect::Quit) => return Ok(()),
                // If the thread were gone, that would have been reported above.
                Some(Effect::Look) => drop(asks.send(Ask::Look(state.view(), state.interval))),
                Some(Effect::Tell(order)) => drop(asks.send(Ask::Tell(order))),
                None => {}
            }
            next = events.try_recv().ok();
        }
    }
    Ok(())
}

/// Starts a thread whose panic is reported to the loop.
fn start(
    name: &str,
    events: &mpsc::Sender<Sent>,
    work: impl FnOnce(&mpsc::Sender<Sent>) + Send + 'static,
) -> Result<(), Failure> {
    let events = events.clone();
    let guarded = move || {
        if catch_unwind(AssertUnwindSafe(|| work(&events))).is_err() {
            let _ = events.blocking_send(None);
        }
    };
    thread::Builder::new().name(name.to_owned()).spawn(guarded).map(drop).map_err(|error| {
        Failure::new(ExitCode::Configuration, format!("a thread cannot be started: {error}"))
    })
}

/// Passes keys on until the terminal is gone, which is the end, or the receiver is gone.
fn type_on(events: &mpsc::Sender<Sent>) {
    while let Ok(typed) = read() {
        let event = match typed {
            Typed::Key(key) if key.is_release() => continue,
            Typed::Key(key) if key.modifiers.contains(KeyModifiers::CONTROL) => match key.code {
                // The terminal makes no signals of keys now.
                KeyCode::Char('c') => Event::Stop,
                _ => continue,
            },
            Typed::Key(key) => Event::Key(key.code),
            Typed::Resize(..) => Event::Resized,
            _ => continue,
        };
        if events.blocking_send(Some(event)).is_err() {
            return;
        }
    }
    let _ = events.blocking_send(Some(Event::Stop));
}

/// Looks again and again, and carries out requests in between, until the sender is gone.
fn look_on(mut looker: Looker, first: Ask, asked: &Receiver<Ask>, events: &mpsc::Sender<Sent>) {
    let (mut view, mut interval) = (View { tabs: Vec::new(), detail: None }, Duration::ZERO);
    let mut next = Ok(first);
    loop {
        // All pending requests, then one look for all of them.
        while let Ok(ask) = next {
            match ask {
                Ask::Look(asked_for, so_often) => (view, interval) = (asked_for, so_often),
                Ask::Tell(order) => {
                    let said = orders::tell(looker.find(), &order);
                    if events.blocking_send(Some(Event::Told(said))).is_err() {
                        return;
                    }
                }
            }
            next = asked.try_recv().map_err(|error| match error {
                TryRecvError::Empty => RecvTimeoutError::Timeout,
                TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            });
        }
        let found = looker.look(&view).map(Box::new).map_err(|failure| failure.to_string());
        if events.blocking_send(Some(Event::Looked(found))).is_err() {
            return;
        }
        next = asked.recv_timeout(interval);
        if matches!(next, Err(RecvTimeoutError::Disconnected)) {
            return;
        }
    }
}

fn unusable(error: io::Error) -> Failure {
    Failure::new(ExitCode::StoreIo, format!("the terminal cannot be used: {error}"))
}

/// The panic itself has been reported on standard error.
fn bug() -> Failure {
    Failure::new(ExitCode::Internal, "a bug in shiftboss ended it; please report the message above")
}
