//! The queue in one SQLite file.
