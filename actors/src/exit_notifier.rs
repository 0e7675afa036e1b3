//! How the tree learns that an actor ended which it cannot do without. actix itself tells nobody: a panic only
//! closes the mailbox. StorageActor, which may end with an error, says so in its own way.

use tokio::sync::mpsc::UnboundedSender;

/// Held by an actor for its whole life: its drop says that the actor ended.
#[derive(Debug)]
pub struct ExitNotifier {
    pub name: &'static str,
    pub exits: UnboundedSender<&'static str>,
}

impl Drop for ExitNotifier {
    fn drop(&mut self) {
        // A tree that is gone has no use for the news.
        let _ = self.exits.send(self.name);
    }
}
