//! What is shown, and what an event changes in it. Pure: [`State::update`] returns what must be done outside, and
//! [`live`](super::live) does it.

use std::time::Duration;

use ratatui::crossterm::event::KeyCode;
use shiftboss_protocol::model::UnixSeconds;

use super::keys::{Command, command};
use super::listing::{Listing, NO_KEY};
use super::opened::{Extent, Instead, Opened, moved};
use super::orders::{CHANGES, Change, Order, Subject, why_not};
use super::picture::{Detail, Picture, View};
use super::prompt::{Prompt, Typed, type_into};
use super::stepped;
use super::tabs::Tab;
use crate::view::table::{Row, Table};

#[derive(Debug)]
pub enum Event {
    Key(KeyCode),
    /// What was found, or why nothing was.
    Looked(Result<Box<Picture>, String>),
    Told(String),
    Resized,
    /// Ctrl-C.
    Stop,
}

#[derive(Debug)]
pub enum Effect {
    /// Something else is looked at, or at other times.
    Look,
    Tell(Order),
    Quit,
}

/// The user's options.
#[derive(Debug, Clone, Copy)]
pub struct Abilities {
    /// False with `--read-only`; the daemon may refuse changes, too.
    pub may_change: bool,
    pub has_outputs: bool,
}

pub struct State {
    pub abilities: Abilities,
    pub interval: Duration,
    pub tab: Tab,
    listings: [Listing; Tab::ALL.len()],
    pub prompt: Prompt,
    pub opened: Option<Opened>,
    pub is_frozen: bool,
    pub message: Option<String>,
    pub picture: Picture,
    pub failure: Option<String>,
    pub seen: Option<UnixSeconds>,
    /// The tab's listing, as it is arranged; `None`: it was not asked for yet.
    pub table: Option<Table>,
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
            table: None,
            extent: Extent::default(),
        };
        state.note_daemon();
        state.arrange();
        state
    }

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
        self.table.as_ref()?.rows.get(self.listing().selected_at()?)
    }

    /// The subject of a key that is pressed now: what is open, wherever its row has gone meanwhile, or else the
    /// selection, which is kept from now on.
    fn pick(&mut self) -> Option<Row> {
        if let Some(picked) = self.opened.as_ref().and_then(|opened| opened.picked.clone()) {
            return Some(picked);
        }
        let rows = rows(&self.table);
        self.listings[self.tab as usize].keep(rows);
        self.selected().cloned()
    }

    /// The keys that change something: none if the user may not.
    pub fn changes(&self) -> &'static [Change] {
        let is_operator = matches!(self.picture.snapshot.live, Ok(Some(_)));
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

    /// A frozen picture stays; only data that it did not have is added.
    fn add(&mut self, picture: Picture) {
        self.picture.detail = picture.detail;
        for (known, found) in self.picture.found.iter_mut().zip(picture.found) {
            *known = known.take().or(found);
        }
    }

    fn note_daemon(&mut self) {
        if self.picture.has_daemon() {
            self.seen = Some(self.picture.snapshot.at);
        }
    }

    /// Makes the rows anew, and looks where the selected one is now.
    fn arrange(&mut self) {
        self.table = self.tab.table(&self.picture);
        if let Some(table) = &mut self.table {
            self.listings[self.tab as usize].arrange(table);
        }
    }

    fn press(&mut self, key: KeyCode) -> Option<Effect> {
        match std::mem::replace(&mut self.prompt, Prompt::None) {
            Prompt::Filter => {
                self.type_filter(key);
                return None;
            }
            Prompt::Key(text) => return self.type_key(text, key),
            Prompt::Confirm(order) => return self.confirm(order, key),
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

    /// Who has no groups needs no room for them.
    pub fn has_groups(&self) -> bool {
        self.tab == Tab::Groups || !self.picture.snapshot.queue.groups.is_empty()
    }

    fn ask(&mut self, change: &Change) {
        let picked = self.pick();
        let key = picked.as_ref().and_then(|picked| picked.key.clone());
        let group = picked.as_ref().and_then(|picked| picked.group.clone());
        let mut held = self.picture.held.keys.iter();
        let is_held = held.any(|held| Some(&held.key) == key.as_ref());
        let subject = Subject {
            is_paused: self.picture.snapshot.queue.paused,
            key: key.as_deref(),
            group: group.as_deref(),
            is_held: is_held || self.picture.is_group_held(group.as_deref()),
        };
        match (change.order)(&subject) {
            Some(order) => self.prompt = Prompt::Confirm(order),
            None => {
                let why = picked.map_or(self.listing().why_none(), |_| NO_KEY);
                self.message = Some(why.to_owned());
            }
        }
    }

    fn confirm(&mut self, order: Order, key: KeyCode) -> Option<Effect> {
        let is_yes = matches!(key, KeyCode::Char('y' | 'Y'));
        self.message = (!is_yes).then(|| "Not done.".to_owned());
        let opened = self.opened.as_ref().and_then(|opened| opened.picked.as_ref());
        let is_selected =
            opened.is_none_or(|picked| self.selected().is_some_and(|row| row.id == picked.id));
        if is_yes && order.is_about_key && is_selected {
            self.listing_mut().stay();
        }
        is_yes.then_some(Effect::Tell(order))
    }

    fn type_filter(&mut self, key: KeyCode) {
        let filter = &mut self.listing_mut().arrangement.text;
        match type_into(filter, key) {
            Typed::GoesOn => self.prompt = Prompt::Filter,
            Typed::Ends => {}
            Typed::IsDropped => filter.clear(),
        }
        self.arrange();
        if self.selected().is_none() {
            // What is being looked up takes its place.
            self.begin();
        }
    }

    /// The key need not be in any list.
    fn type_key(&mut self, mut text: String, key: KeyCode) -> Option<Effect> {
        match type_into(&mut text, key) {
            Typed::GoesOn => self.prompt = Prompt::Key(text),
            Typed::Ends if !text.is_empty() => {
                let what = Instead::Detail(Detail::Why(text.clone()));
                let picked = Row { id: text.clone(), key: Some(text), ..Row::default() };
                self.opened = Some(Opened::new(what, Some(picked)));
                return Some(Effect::Look);
            }
            Typed::Ends | Typed::IsDropped => {}
        }
        None
    }

    fn begin(&mut self) {
        let rows = rows(&self.table);
        self.listings[self.tab as usize].begin(rows);
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
            // Who looked for it in the list need not type it again.
            Command::Ask => self.prompt = Prompt::Key(self.listing().arrangement.text.clone()),
            Command::Longer | Command::Shorter => {
                self.interval = stepped(self.interval, command == Command::Longer);
                return Some(Effect::Look);
            }
            Command::Tab(tab) => return self.show(tab),
            Command::NextTab => return self.show(self.tab.beside(true, self.has_groups())),
            Command::PreviousTab => return self.show(self.tab.beside(false, self.has_groups())),
            Command::Why | Command::Output => return self.open(command),
            Command::Sort | Command::Reverse => {
                let columns = self.table.as_ref().map_or(0, |table| table.columns.len());
                let listing = self.listing_mut();
                match command {
                    Command::Sort => listing.sort_by_next_of(columns),
                    _ => listing.arrangement.is_reversed = !listing.arrangement.is_reversed,
                }
                self.arrange();
                if command == Command::Sort {
                    self.begin();
                }
            }
            _ => self.go(command),
        }
        None
    }

    /// Closes what was opened last, then removes the filter; only `q` ends the program.
    fn leave(&mut self, may_quit: bool) -> Option<Effect> {
        if self.opened.take().is_some() {
            return Some(Effect::Look);
        }
        if !may_quit {
            self.listing_mut().arrangement.text.clear();
            self.arrange();
        }
        may_quit.then_some(Effect::Quit)
    }

    fn show(&mut self, tab: Tab) -> Option<Effect> {
        (self.tab, self.opened) = (tab, None);
        self.arrange();
        Some(Effect::Look)
    }

    /// Opens what the selected row leads to, or closes it. A key's job is asked about from its place in the queue, too.
    fn open(&mut self, command: Command) -> Option<Effect> {
        let picked = self.pick();
        let opened = self.opened.as_ref().map(|opened| &opened.what);
        let is_why = matches!(opened, Some(Instead::Detail(Detail::Why(_))));
        if opened.is_some() && !(is_why && command == Command::Output) {
            self.opened = None;
            return Some(Effect::Look);
        }
        let Some(picked) = picked else {
            self.message = Some(self.listing().why_none().to_owned());
            return None;
        };
        match self.detail(command, &picked) {
            Ok(detail) => {
                let what = Instead::Detail(detail);
                self.opened = Some(Opened::new(what, Some(picked)));
                Some(Effect::Look)
            }
            Err(why) => {
                self.message = Some(why.to_owned());
                None
            }
        }
    }

    /// What it opens, or why nothing.
    fn detail(&self, command: Command, picked: &Row) -> Result<Detail, &'static str> {
        match (command, &picked.key) {
            (Command::Output, _) if !self.abilities.has_outputs => {
                Err("Start it with --log-dir to see outputs.")
            }
            (Command::Output, _) => picked
                .attempt
                .clone()
                .map(Detail::Output)
                .ok_or("Only what is in flight, delayed, or ended has an output."),
            (_, Some(key)) => Ok(Detail::Why(key.clone())),
            (_, None) => Ok(Detail::Fetcher(picked.id.clone())),
        }
    }

    fn help(&mut self) {
        let is_open = self.opened.as_ref().is_some_and(|opened| opened.what == Instead::Help);
        self.opened = (!is_open).then(|| Opened::new(Instead::Help, None));
    }

    fn go(&mut self, command: Command) {
        if let Some(opened) = &mut self.opened {
            return opened.go(command, self.extent);
        }
        let rows = rows(&self.table);
        let listing = &mut self.listings[self.tab as usize];
        // If the selected row has moved or is gone, the row at its old place is the next one.
        let is_next = command == Command::Down && listing.selected_at() != Some(listing.at);
        let at = moved(command, listing.at, rows.len().saturating_sub(1), self.extent.page);
        listing.select(rows, if is_next { listing.at } else { at });
    }
}

fn rows(table: &Option<Table>) -> &[Row] {
    table.as_ref().map_or(&[], |table| &table.rows)
}
