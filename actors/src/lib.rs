//! The supervision tree of shiftboss and the language it speaks.
//!
//! The language: [`model`] (keys, runs, jobs), [`fetcher_file`] (names and lines of fetcher
//! files), [`wire`] (the worker protocol), [`store`] (what the tree needs of a queue), [`reports`] (what operators
//! ask), [`live`] (what only the daemon's memory knows).
//!
//! The tree: [`tree`] starts [`storage`] (StorageActor), [`file_watcher`] (FileWatcherActor),
//! which starts a [`file_tail`] (FileTailActor) per run, and [`listener`] (ListenerActor), which
//! starts a [`connection`] (ConnectionActor) per socket. [`guest`] is what else may live in it.
//!
//! Plain helpers under them: [`directory`], [`watch`] and [`run_reader`] (files), [`peer`]
//! (sockets), [`throttle`] and [`spell`] (warnings), [`clock`], [`vital`].
//!
//! Invariants: nothing here knows SQL, the command line, or a file outside the input
//! directory; `model`, `fetcher_file`, `wire` and `store` know no actor.

mod accept;
pub mod clock;
pub mod connection;
pub mod directory;
pub mod fetcher_file;
pub mod file_tail;
pub mod file_watcher;
pub mod guest;
pub mod listener;
pub mod live;
pub mod model;
pub mod peer;
pub mod reports;
pub mod run_reader;
pub mod spell;
pub mod storage;
pub mod store;
pub mod task_line;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod throttle;
pub mod tree;
pub mod vital;
pub mod watch;
pub mod wire;
