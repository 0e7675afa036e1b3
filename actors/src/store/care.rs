//! What a store tells of its own state on disk, when it looks after itself.

/// Whether the main database file holds everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checkpoint {
    /// A copy of the main file is complete and current.
    Complete,
    /// A reader holds the log back: try again later.
    Partial,
}
