//! How the tree learns that an actor it depends on has ended. actix itself reports nothing: a panic only closes the
//! mailbox. The StorageActor, which may end with an error, reports that in its own way.

use tokio::sync::mpsc::UnboundedSender;

#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    Panicked(&'static str),
    /// A setting turned out to be wrong: the text says which one, and what to do.
    WrongSetting(String),
}

/// Held by an actor for its whole life: its drop reports that the actor ended.
#[derive(Debug)]
pub struct ExitNotifier {
    pub name: &'static str,
    pub exits: UnboundedSender<Exit>,
}

impl ExitNotifier {
    pub fn wrong_setting(self, text: String) {
        // Sent before the drop's own message: the first message counts.
        let _ = self.exits.send(Exit::WrongSetting(text));
    }
}

impl Drop for ExitNotifier {
    fn drop(&mut self) {
        // A tree that is gone has no use for the news.
        let _ = self.exits.send(Exit::Panicked(self.name));
    }
}
