//! The supervision tree of shiftboss.
//!
//! Ports: [`store`] (what the tree needs of a queue, and what can be asked of it), [`live`] (what only the daemon
//! knows of itself), [`metrics`] (what it counts), [`service`] (what else may live in the tree).
//!
//! The tree: [`tree`] starts [`storage`] (StorageActor), [`file_watcher`] (FileWatcherActor),
//! which starts a [`file_tail`] (FileTailActor) per run, and [`listener`] (ListenerActor), which
//! starts a [`connection`] (ConnectionActor) per socket.
//!
//! Plain helpers under them: [`directory`], [`watch`], [`file_identity`] and [`run_reader`] (files), [`peer`]
//! (sockets), [`fs_events`] (inotify), [`throttle`] (warnings), [`clock`],
//! [`exit_notifier`].
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
pub mod live;
pub mod metrics;
pub mod peer;
pub mod run_reader;
pub mod service;
pub mod storage;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod throttle;
pub mod tree;
pub mod watch;

pub use shiftboss_queue::file_identity;
