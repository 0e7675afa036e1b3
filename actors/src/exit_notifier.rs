//! How the tree learns that an actor ended which it cannot do without. actix itself tells nobody: a panic only
//! closes the mailbox. StorageActor, which may end with an error, says so in its own way.

use tokio::sync::mpsc::UnboundedSender;

#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    Panicked(&'static str),
    /// A setting is wrong, which was not known before: says what it is, and what to do.
    WrongSetting(String),
}

/// Held by an actor for its whole life: its drop says that the actor ended.
#[derive(Debug)]
pub struct ExitNotifier {
    pub name: &'static str,
    pub exits: UnboundedSender<Exit>,
}

impl ExitNotifier {
    pub fn wrong_setting(self, text: String) {
        // Before what its drop says: the first word counts.
        let _ = self.exits.send(Exit::WrongSetting(text));
    }
}

impl Drop for ExitNotifier {
    fn drop(&mut self) {
        // A tree that is gone has no use for the news.
        let _ = self.exits.send(Exit::Panicked(self.name));
    }
}
