//! The spool of the soak's daemon: a hundred thousand tasks in ten minutes' time, each handed out once and
//! gone when it is done.
//!
//! Called by the soak's main thread, before the daemon starts and when all is worked off.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use shiftspool::{
    Durability, FsckOptions, Item, Options, QueueName, Spool, SpoolError, time_ordered,
};

use crate::Soak;
use crate::ledger::{RunId, line};

/// The spool's directory in the daemon's, and the flags of a daemon that takes its tasks.
pub const FLAGS: [&str; 2] = ["--spool", "spool"];
/// The tasks as a run, that no fetcher has.
pub const RUN: RunId = (1_000, 1);
const TASKS_MAX: usize = 100_000;
const TASKS_A_SECOND: u64 = 170;
/// How long the daemon may take to remove what was done last, and between two looks.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);

fn queue() -> io::Result<QueueName> {
    QueueName::new("tasks").map_err(io::Error::other)
}

fn open(home: &Path) -> io::Result<Spool> {
    let path: PathBuf = home.join(FLAGS[1]);
    let options = Options { durability: Durability::None, ..Options::default() };
    Spool::create(&path, options).map_err(io::Error::other)
}

/// Puts the tasks.
///
/// # Errors
/// When the spool does not take them.
pub fn put(soak: &Soak) -> io::Result<()> {
    let count = TASKS_MAX.min(usize::try_from(soak.time.as_secs() * TASKS_A_SECOND).unwrap_or(0));
    soak.ledger().write(RUN, count);
    let items: Vec<_> = (0..count).map(|index| Item::new(line("spool", index, RUN), "")).collect();
    let put = open(&soak.home)?.enqueue_batch(&queue()?, time_ordered, &items);
    put.map(drop).map_err(io::Error::other)
}

/// Looks that they are gone, and nothing is left of them.
///
/// # Errors
/// When the spool cannot be looked at.
pub fn look(soak: &Soak) -> io::Result<()> {
    let spool = open(&soak.home)?;
    let since = Instant::now();
    while left(&spool).map_err(io::Error::other)? > 0 {
        if since.elapsed() > PATIENCE {
            let left = left(&spool).map_err(io::Error::other)?;
            soak.fault(format!("{left} tasks of the spool are left after {PATIENCE:?}"));
            break;
        }
        thread::sleep(LOOK);
    }
    let repair = FsckOptions { repair: false, older_than: None };
    let checked = spool.fsck(repair).map_err(io::Error::other)?;
    if !checked.is_clean() {
        soak.fault(format!("the daemon's spool: {:?}", checked.findings));
    }
    Ok(())
}

fn left(spool: &Spool) -> Result<usize, SpoolError> {
    let mut left = 0;
    for queue in spool.queues()? {
        left += spool.list(&queue)?.len() + spool.list_checkouts(&queue)?.len();
    }
    Ok(left)
}
