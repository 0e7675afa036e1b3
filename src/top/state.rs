//! What is shown, and what an event changes in it. Pure: [`State::update`] says what is to be done outside, and [`live`](super::live)
//! does it.

use std::time::Duration;

use ratatui::crossterm::event::KeyCode;
use shiftboss_protocol::model::UnixSeconds;

use super::keys::{Command, command};
use super::listing::{Listing, NO_KEY};
use super::orders::{CHANGES, Change, Order, Subject, why_not};
use super::picture::{Detail, Picture, View};
use super::rows::{self, Picked, Row};
use super::stepped;
use super::tabs::Tab;

/// Characters of a filter.
const FILTER_MAX: usize = 100;

#[derive(Debug)]
pub enum Event {
    Key(KeyCode),
    /// What was found, or why nothing was.
    Looked(Result<Box<Picture>, String>),
    /// What came of an order.
    Told(String),
    /// The terminal has another size.
    Resized,
    /// Ctrl-C.
    Stop,
}

/// What is to be done outside.
#[derive(Debug)]
pub enum Effect {
    /// Something else is looked at, or at other times.
    Look,
    Tell(Order),
    Quit,
}

/// What the user has at his disposal.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// Unless it is for reading only; the daemon has its say, too.
    pub may_change: bool,
    /// It is known where jobs write.
    pub has_outputs: bool,
}

/// What is shown in the place of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instead {
    /// What the keys do.
    Help,
    Detail(Detail),
}

/// What was opened in the place of the list.
#[derive(Debug)]
pub struct Opened {
    pub what: Instead,
    /// What it was opened from; `None`: it is about nothing.
    picked: Option<Picked>,
    /// Lines that are passed over; of an output from its end.
    pub scroll: usize,
}

/// What the next key belongs to.
#[derive(Debug)]
pub enum Prompt {
    None,
    Filter,
    Confirm(Order),
}

/// How much of what is open fits at once, and of how much: what was drawn tells it.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub page: usize,
    pub lines: usize,
}

pub struct State {
    pub abilities: Abilities,
    pub interval: Duration,
    pub tab: Tab,
    listings: [Listing; 4],
    pub prompt: Prompt,
    pub opened: Option<Opened>,
    pub is_frozen: bool,
    /// What came of the last order.
    pub message: Option<String>,
    pub picture: Picture,
    /// Why there is no newer picture.
    pub failure: Option<String>,
    /// When a daemon was there at last.
    pub seen: Option<UnixSeconds>,
    /// Of the tab, those that the filter lets through, in order; `None`: they were not asked for yet.
    pub rows: Option<Vec<Row>>,
    pub extent: Extent,
}

impl State {
    pub fn new(picture: Picture, interval: Duration, abilities: Abilities) -> Self {
        let mut state = Self {
            abilities,
            interval,
            tab: Tab::Fetchers,
            listings: Default::default(),
            prompt: Prompt::None,
            opened: None,
            is_frozen: false,
            message: None,
            picture,
            failure: None,
            seen: None,
            rows: None,
            extent: Extent::default(),
        };
        state.note_daemon();
        state.arrange();
        state
    }

    /// What is to be asked for.
    pub fn view(&self) -> View {
        let detail = match self.opened.as_ref().map(|opened| &opened.what) {
            Some(Instead::Detail(detail)) => Some(detail.clone()),
            Some(Instead::Help) | None => None,
        };
        View { tabs: vec![self.tab], detail }
    }

    pub fn listing(&self) -> &Listing {
        &self.listings[self.tab as usize]
    }

    fn listing_mut(&mut self) -> &mut Listing {
        &mut self.listings[self.tab as usize]
    }

    pub fn selected(&self) -> Option<&Row> {
        self.listing().selected(self.rows.as_ref()?)
    }

    /// What a key that is pressed now is about: what is open, wherever its row went meanwhile, or else what is selected.
    fn picked(&self) -> Option<Picked> {
        let opened = self.opened.as_ref().and_then(|opened| opened.picked.clone());
        opened.or_else(|| self.selected().map(Row::picked))
    }

    /// Those keys that change something: none for who may not.
    pub fn changes(&self) -> &'static [Change] {
        let is_operator = matches!(self.picture.live, Ok(Some(_)));
        if self.abilities.may_change && is_operator { CHANGES } else { &[] }
    }

    /// No daemon does anything, or it is not known what.
    pub fn is_stale(&self) -> bool {
        self.failure.is_some() || !self.picture.has_daemon()
    }

    pub fn update(&mut self, event: Event) -> Option<Effect> {
        match event {
            Event::Key(key) => return self.press(key),
            Event::Looked(found) => self.take(found),
            Event::Told(said) => self.message = Some(said),
            Event::Resized => {}
            Event::Stop => return Some(Effect::Quit),
        }
        None
    }

    fn take(&mut self, found: Result<Box<Picture>, String>) {
        match found {
            Err(why) => self.failure = Some(why),
            Ok(picture) => {
                self.failure = None;
                match self.is_frozen {
                    true => self.add(*picture),
                    false => self.picture = *picture,
                }
                self.note_daemon();
                self.arrange();
            }
        }
    }

    /// What is frozen stays; what was not there yet comes to it.
    fn add(&mut self, picture: Picture) {
        self.picture.detail = picture.detail;
        self.picture.lists.complete_from(picture.lists);
    }

    fn note_daemon(&mut self) {
        if self.picture.has_daemon() {
            self.seen = Some(self.picture.at);
        }
    }

    /// Makes the rows anew, and looks where the selected one is now.
    fn arrange(&mut self) {
        let rows = rows::rows(self.tab, &self.picture);
        let listing = &mut self.listings[self.tab as usize];
        self.rows = rows.map(|rows| listing.arranged(rows));
    }

    fn press(&mut self, key: KeyCode) -> Option<Effect> {
        match std::mem::replace(&mut self.prompt, Prompt::None) {
            Prompt::Filter => {
                self.type_filter(key);
                return None;
            }
            Prompt::Confirm(order) => {
                let is_yes = matches!(key, KeyCode::Char('y' | 'Y'));
                self.message = (!is_yes).then(|| "Not done.".to_owned());
                if is_yes && order.is_about_key {
                    // It may go far: who acts on several rows goes on from here.
                    self.listing_mut().let_go();
                }
                return is_yes.then_some(Effect::Tell(order));
            }
            Prompt::None => self.message = None,
        }
        let change = self.changes().iter().find(|change| key == KeyCode::Char(change.key));
        match (change, command(key)) {
            (Some(change), _) => {
                self.ask(change);
                None
            }
            (None, Some(command)) => self.obey(command),
            (None, None) => {
                let would_change = CHANGES.iter().any(|change| key == KeyCode::Char(change.key));
                self.message = would_change.then(|| why_not(self.abilities.may_change).to_owned());
                None
            }
        }
    }

    /// Asks whether it is meant.
    fn ask(&mut self, change: &Change) {
        let key = self.picked().and_then(|picked| picked.key);
        let mut held = self.picture.lists.held.iter().flat_map(|held| &held.keys);
        let subject = Subject {
            is_paused: self.picture.queue.paused,
            key: key.as_deref(),
            is_held: held.any(|held| Some(&held.key) == key.as_ref()),
        };
        match (change.order)(&subject) {
            Some(order) => self.prompt = Prompt::Confirm(order),
            None => {
                let why = self.picked().map_or(self.listing().why_none(), |_| NO_KEY);
                self.message = Some(why.to_owned());
            }
        }
    }

    fn type_filter(&mut self, key: KeyCode) {
        self.prompt = Prompt::Filter;
        let filter = &mut self.listings[self.tab as usize].filter;
        match key {
            KeyCode::Enter => self.prompt = Prompt::None,
            KeyCode::Esc => {
                self.prompt = Prompt::None;
                filter.clear();
            }
            KeyCode::Backspace => drop(filter.pop()),
            KeyCode::Char(typed) if filter.chars().count() < FILTER_MAX => filter.push(typed),
            _ => {}
        }
        self.arrange();
        if self.selected().is_none() {
            // What is looked for takes its place.
            self.listing_mut().let_go();
        }
    }

    fn obey(&mut self, command: Command) -> Option<Effect> {
        match command {
            Command::Quit | Command::Leave => return self.leave(command == Command::Quit),
            Command::Help => self.help(),
            Command::Freeze => {
                self.is_frozen = !self.is_frozen;
                return Some(Effect::Look);
            }
            Command::Filter => self.prompt = Prompt::Filter,
            Command::Longer | Command::Shorter => {
                self.interval = stepped(self.interval, command == Command::Longer);
                return Some(Effect::Look);
            }
            Command::Tab(tab) => return self.show(tab),
            Command::NextTab => return self.show(Tab::ALL[(self.tab as usize + 1) % 4]),
            Command::PreviousTab => return self.show(Tab::ALL[(self.tab as usize + 3) % 4]),
            Command::Why | Command::Output => return self.open(command),
            Command::Sort | Command::Reverse => {
                let columns = self.tab.columns().len();
                let listing = self.listing_mut();
                match command {
                    Command::Sort => listing.sort_by_next_of(columns),
                    _ => listing.is_reversed = !listing.is_reversed,
                }
                self.arrange();
            }
            _ => self.go(command),
        }
        None
    }

    /// Closes what was opened last, then takes away the filter; only `q` ends it all.
    fn leave(&mut self, may_quit: bool) -> Option<Effect> {
        if self.opened.take().is_some() {
            return Some(Effect::Look);
        }
        if !may_quit {
            self.listing_mut().filter.clear();
            self.arrange();
        }
        may_quit.then_some(Effect::Quit)
    }

    fn show(&mut self, tab: Tab) -> Option<Effect> {
        (self.tab, self.opened) = (tab, None);
        self.arrange();
        Some(Effect::Look)
    }

    /// Opens what the selected row leads to, or closes it.
    fn open(&mut self, command: Command) -> Option<Effect> {
        let picked = self.picked();
        let was = self.opened.take().map(|opened| opened.what);
        let is_why = matches!(was, Some(Instead::Detail(Detail::Why(_))));
        if was.is_some() && !(is_why && command == Command::Output && self.abilities.has_outputs) {
            return Some(Effect::Look);
        }
        let Some(picked) = picked else {
            self.message = Some(self.listing().why_none().to_owned());
            return None;
        };
        let detail = match (command, &picked.key) {
            (Command::Output, _) if !self.abilities.has_outputs => {
                self.message = Some("Start it with --log-dir to see outputs.".to_owned());
                return None;
            }
            (Command::Output, _) => picked.attempt.clone().map(Detail::Output),
            (_, Some(key)) => Some(Detail::Why(key.clone())),
            (_, None) => Some(Detail::Fetcher(picked.id.clone())),
        };
        let Some(detail) = detail else {
            self.message = Some("Only what is in flight, or ended, has an output.".to_owned());
            return was.map(|_| Effect::Look);
        };
        let what = Instead::Detail(detail);
        self.opened = Some(Opened { what, picked: Some(picked), scroll: 0 });
        Some(Effect::Look)
    }

    fn help(&mut self) {
        let is_open = self.opened.as_ref().is_some_and(|opened| opened.what == Instead::Help);
        let help = Opened { what: Instead::Help, picked: None, scroll: 0 };
        self.opened = (!is_open).then_some(help);
    }

    fn go(&mut self, command: Command) {
        let page = self.extent.page.max(1);
        let moved = |at: usize, last: usize| match command {
            Command::Up => at.saturating_sub(1),
            Command::Down => at.saturating_add(1).min(last),
            Command::PageUp => at.saturating_sub(page),
            Command::PageDown => at.saturating_add(page).min(last),
            Command::First => 0,
            _ => last,
        };
        let rest = self.extent.lines.saturating_sub(self.extent.page);
        match &mut self.opened {
            // An output is gone through from its end.
            Some(Opened { what: Instead::Detail(Detail::Output(_)), scroll, .. }) => {
                *scroll = rest - moved(rest.saturating_sub(*scroll), rest);
            }
            Some(opened) => opened.scroll = moved(opened.scroll.min(rest), rest),
            None => {
                let rows = self.rows.as_deref().unwrap_or_default();
                let listing = &mut self.listings[self.tab as usize];
                // What came to the place of a row that is gone is the next one.
                let is_next = command == Command::Down && listing.selected(rows).is_none();
                let at = moved(listing.at, rows.len().saturating_sub(1));
                listing.select(rows, if is_next { listing.at } else { at });
            }
        }
    }
}
