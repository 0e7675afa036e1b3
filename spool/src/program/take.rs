//! `shiftspool take`, and what resolves a checkout: `move`, `release`, `rm`.

use std::time::Duration;

use shiftboss_console::exit::{ExitCode, Failure};
use shiftboss_console::printing::offer;

use super::cli::{OneEntry, TakeArguments};
use super::never;
use crate::{Guard, Order, QueueName, Spool, SpoolError};

pub fn take(spool: &Spool, typed: &TakeArguments) -> Result<(), Failure> {
    let order = if typed.spread { Order::Spread } else { Order::Strict };
    let queue = &typed.place.queue;
    let mut reader = spool.reader(queue, order)?;
    let limit = Some(typed.wait.unwrap_or(Duration::ZERO));
    let Some(guard) = reader.dequeue(&never()?, limit)? else {
        let message = format!("there is nothing to take in {queue}");
        return Err(Failure::new(ExitCode::Unavailable, message));
    };
    let name = guard.name().clone();
    // Detached first: the reader of the name can resolve the checkout, whatever happens to us.
    guard.detach(typed.lease)?;
    match offer(format!("{name}\n")) {
        Ok(true) => Ok(()),
        // The name was not read.
        result => {
            let guard = spool.resolve(queue, &name)?;
            guard.map_or(Ok(()), Guard::release)?;
            result.map(drop)
        }
    }
}

/// A failure that says where the entry is, if it is not in the named queue.
fn not_there(spool: &Spool, entry: &OneEntry, error: SpoolError) -> Failure {
    let (queue, name) = (&entry.queue, &entry.name);
    if !matches!(error, SpoolError::NotFound { .. }) {
        return error.into();
    }
    let mut queues = spool.queues().unwrap_or_default().into_iter();
    match queues.find(|other| other != queue && spool.info(other, name).is_ok()) {
        Some(other) => {
            let text = format!("there is no entry {name} in {queue}: it is in {other}");
            Failure::new(ExitCode::BadData, text)
        }
        None => error.into(),
    }
}

pub fn shift(spool: &Spool, entry: &OneEntry, to: &QueueName) -> Result<(), Failure> {
    let guard = spool.resolve_or_checkout(&entry.queue, &entry.name);
    Ok(guard.map_err(|error| not_there(spool, entry, error))?.move_to(to)?)
}

pub fn remove(spool: &Spool, entry: &OneEntry) -> Result<(), Failure> {
    let discarded = spool.discard(&entry.queue, &entry.name);
    discarded.map_err(|error| not_there(spool, entry, error))
}

pub fn release(spool: &Spool, entry: &OneEntry) -> Result<(), Failure> {
    match spool.resolve(&entry.queue, &entry.name)? {
        Some(guard) => Ok(guard.release()?),
        None => {
            let message = format!("{} is not checked out of {}", entry.name, entry.queue);
            Err(Failure::new(ExitCode::BadData, message))
        }
    }
}
