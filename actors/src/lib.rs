//! The supervision tree of shiftboss.
//!
//! Ports: [`store`] (what the tree needs of a queue, and what can be asked of it), [`live`](shiftboss_protocol::answers::live) (what only the daemon
//! knows of itself), [`metrics`] (what it counts), [`service`] (what else may live in the tree).
//!
//! [`tree`] starts, watches and stops:
//!
//! ```text
//! StorageActor         storage.rs        owns the store: every change goes through it, and is answered when it is durable
//! FileWatcherActor     file_watcher.rs   the input directory
//!   FileTailActor      file_tail.rs      one a run: reads its file, and sends its rows to the StorageActor
//! ListenerActor        listener.rs       the socket
//!   ConnectionActor    connection.rs     one a worker: asks the StorageActor for jobs
//! ```
//!
//! Plain helpers under them: [`directory`] and [`run_reader`] (files), [`peer`] (sockets), [`fs_events`] (inotify), [`throttle`]
//! (warnings), [`reconnect`] (for stores that are elsewhere), [`clock`], [`exit_notifier`].
//!
//! Invariants: nothing here knows SQL or parses a command line; nothing but [`fs_events`] and [`peer`] knows a file
//! outside the input directory; `store` knows no actor.

pub mod clock;
pub mod connection;
pub mod directory;
pub mod exit_notifier;
pub mod file_tail;
pub mod file_watcher;
pub mod fs_events;
pub mod listener;
pub mod metrics;
pub mod peer;
pub mod reconnect;
pub mod run_reader;
pub mod service;
pub mod storage;
pub mod store;
mod streaks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod throttle;
pub mod tree;
