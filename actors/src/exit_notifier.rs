//! How a parent learns that a child ended, whichever way: by word, or by a panic.
//!
//! The child holds a [`ExitNotifier`], the parent the other end. A child that drops its `ExitNotifier` without
//! a word has panicked (or was dropped, which is the same to its parent). actix itself tells
//! nobody: a panic only closes the mailbox.

use tokio::sync::oneshot;

/// Held by a child for its whole life.
#[derive(Debug)]
pub struct ExitNotifier<E>(Option<oneshot::Sender<E>>);

impl<E> ExitNotifier<E> {
    /// A `ExitNotifier` for the child, and what its parent waits on: `Err` there means a panic.
    pub fn new() -> (Self, oneshot::Receiver<E>) {
        let (sender, receiver) = oneshot::channel();
        (Self(Some(sender)), receiver)
    }

    /// The child's last word. Only the first one counts.
    pub fn ended(&mut self, how: E) {
        if let Some(sender) = self.0.take() {
            // A parent that is gone has no use for the news.
            let _ = sender.send(how);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_parent_hears_the_word_or_the_silence() {
        let (mut exit_notifier, end) = ExitNotifier::new();
        exit_notifier.ended("done");
        exit_notifier.ended("again");
        assert_eq!(end.await, Ok("done"));

        let (exit_notifier, end) = ExitNotifier::<()>::new();
        drop(exit_notifier);
        assert!(end.await.is_err());
    }
}
