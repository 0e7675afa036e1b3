//! The actors of one fetcher, wired: a RunActor, and a ChangeActor if it watches trees.
//!
//! [`super::supervisor`] starts, ends and replaces them. When to run is the RunActor's to say.

use std::future::Future;
use std::sync::Arc;

use actix::prelude::*;
use shiftboss_actors::clock::SystemClock;
use shiftboss_actors::exit_notifier::ExitNotifier;
use tokio::sync::oneshot;

use crate::change::change_actor::{ChangeActor, ChangeError, Close};
use crate::change::globs::GlobError;
use crate::change::machine::{Refusal, Timing};
use crate::change::messages::{Changes, Drain};
use crate::change::run_actor::{Due, Observer, RunActor, RunParts, Stop};
use crate::change::runs::Runs;
use crate::change::tree_watch::Kernel;
use crate::change::watch::Trees;
use crate::config::{FetcherTable, OnChangeTable};

/// A fetcher that runs.
pub(super) struct Child {
    /// What it was started for.
    pub table: FetcherTable,
    run: Addr<RunActor>,
    watch: Option<Addr<ChangeActor>>,
}

impl Child {
    /// A run is due by the clock.
    pub fn due(&self) {
        self.run.do_send(Due);
    }

    /// Ends it; its life resolves when it is over.
    pub fn end(&self) {
        match &self.watch {
            // The end of the watch is that of the whole child.
            Some(watch) => watch.do_send(Close),
            None => self.run.do_send(Stop),
        }
    }

    /// Kills what is still on of a child that was told to end.
    pub fn kill(&self) {
        self.run.do_send(Stop);
    }
}

/// Starts a fetcher. The future is its life: it resolves when nothing of it is left, whether it was ended or
/// an actor of it panicked.
///
/// # Errors
/// When a glob cannot be understood; the configuration was refused then.
pub(super) fn start(
    table: FetcherTable,
    runs: Box<dyn Runs>,
    observer: Box<dyn Observer>,
) -> Result<(Child, impl Future<Output = ()> + use<>), GlobError> {
    let trees = table.on_change.as_ref().map(trees).transpose()?;
    let (exit_notifier, running) = ExitNotifier::new();
    let (mut watch, mut watching) = (None, None);
    let (name, timing) = (table.name.as_str().to_owned(), timing(&table));
    let run = RunActor::create(|ctx| {
        if let Some(trees) = trees {
            let (address, end) = start_watch(trees, ctx.address().recipient());
            (watch, watching) = (Some(address), Some(end));
        }
        let drain: Option<Recipient<Drain>> = watch.clone().map(Addr::recipient);
        let clock = Box::new(SystemClock);
        RunActor::new(RunParts { name, timing, runs, watch: drain, observer, clock, exit_notifier })
    });
    let life = life(run.clone(), running, watch.clone(), watching);
    Ok((Child { table, run, watch }, life))
}

/// A watch that cannot be opened yet is tried again: a tree may come later than the daemon.
fn start_watch(
    trees: Trees,
    changes: Recipient<Changes>,
) -> (Addr<ChangeActor>, oneshot::Receiver<ChangeError>) {
    let (exit_notifier, end) = ExitNotifier::new();
    let opener = Arc::new(move || crate::change::open(&trees, Kernel));
    (ChangeActor::new(opener, changes, exit_notifier).patient().start(), end)
}

async fn life(
    run: Addr<RunActor>,
    mut running: oneshot::Receiver<Refusal>,
    watch: Option<Addr<ChangeActor>>,
    watching: Option<oneshot::Receiver<ChangeError>>,
) {
    let watching = async {
        match watching {
            Some(end) => drop(end.await),
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = &mut running => {}
        () = watching => {
            let _ = run.send(Stop).await;
            // It has let go of its list when it is dropped, not before.
            let _ = running.await;
        }
    }
    if let Some(watch) = watch {
        watch.do_send(Close);
    }
}

fn trees(on_change: &OnChangeTable) -> Result<Trees, GlobError> {
    Ok(Trees::new(on_change.paths.clone(), on_change.filter()?))
}

/// One that watches nothing has nothing to wait for.
fn timing(table: &FetcherTable) -> Timing {
    let time = |of: fn(&OnChangeTable) -> std::time::Duration| {
        table.on_change.as_ref().map(of).unwrap_or_default()
    };
    Timing {
        debounce: time(|on_change| on_change.debounce),
        max_wait: time(|on_change| on_change.max_wait),
        cooldown: time(|on_change| on_change.cooldown),
        retry: table.retry,
    }
}
