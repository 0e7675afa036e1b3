//! The fetchers of the soak: lists that are written, grow, are left unfinished, and are replaced.
//!
//! One thread plays all of them in turn. A fetcher goes on when the workers have got far enough with
//! its last list, so that work never ends and never heaps up either. Every new run lists the same
//! keys again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::Soak;
use crate::ledger::{Ledger, RunId, line};

/// Pause between two looks at all fetchers.
const PAUSE: Duration = Duration::from_millis(5);
/// Lines that a growing list gets at once, and the lines left of it at which it gets more.
const GROWTH: usize = 500;
const GROWTH_BELOW: usize = 2_000;
/// Jobs that may be handed out while none of a list's lines is. It is no time, since a disk may be slow: a key
/// that ran waits until all others, 120,000 and those of tasks and edits, had their turn.
const PATIENCE_JOBS: u64 = 300_000;

/// How a fetcher writes its lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// At once; the next when all was handed out.
    Whole,
    /// The same, but the next one comes when half was handed out.
    Hasty,
    /// Bit by bit, and completed at its end.
    Growing,
    /// Bit by bit, and never completed: the fetcher failed.
    Failing,
}

/// Manner, first word of the keys, and lines of each list. Two list the same keys, and one has so
/// few that its runs come and go all the time.
const FETCHERS: [(Manner, &str, usize); 7] = [
    (Manner::Whole, "shared", 20_000),
    (Manner::Whole, "shared", 20_000),
    (Manner::Whole, "large", 60_000),
    (Manner::Whole, "few", 100),
    (Manner::Hasty, "hasty", 10_000),
    (Manner::Growing, "growing", 20_000),
    (Manner::Failing, "failing", 10_000),
];

/// One fetcher, step by step.
pub struct Fetcher {
    input: PathBuf,
    id: RunId,
    manner: Manner,
    keys: &'static str,
    lines: usize,
    /// The list that is being written, and how many lines it has.
    open: Option<File>,
    written: usize,
}

/// Plays all fetchers until the load ends.
///
/// # Errors
/// When a file cannot be written.
pub fn run(soak: &Soak) -> io::Result<()> {
    let input = soak.home.join("input");
    let fetcher = |(number, (manner, keys, lines))| {
        (Fetcher::new(&input, number, manner, keys, lines), (0, 0))
    };
    let mut fetchers: Vec<_> = FETCHERS.into_iter().enumerate().map(fetcher).collect();
    while soak.goes_on(PAUSE) {
        for (fetcher, moved) in &mut fetchers {
            look_at_waiting(soak, fetcher, moved);
            fetcher.step(&soak.ledger)?;
        }
    }
    Ok(())
}

/// `moved`: the jobs of all fetchers when lines were handed out last, and how many were left then.
fn look_at_waiting(soak: &Soak, fetcher: &Fetcher, moved: &mut (u64, usize)) {
    let ledger = soak.ledger();
    let (jobs, left) = (ledger.all_jobs(), ledger.left(fetcher.id));
    drop(ledger);
    if left == 0 || left != moved.1 {
        *moved = (jobs, left);
    } else if jobs - moved.0 > PATIENCE_JOBS {
        let (run, keys) = (fetcher.id, fetcher.keys);
        soak.fault(format!(
            "{left} lines of {keys} wait in run {run:?} while {PATIENCE_JOBS} jobs were handed out"
        ));
        moved.0 = jobs;
    }
}

impl Fetcher {
    /// The fetcher with this number, which writes lists of so many lines into a directory.
    #[must_use]
    pub fn new(
        input: &Path,
        number: usize,
        manner: Manner,
        keys: &'static str,
        lines: usize,
    ) -> Self {
        let input = input.to_owned();
        Self { input, id: (number, 0), manner, keys, lines, open: None, written: 0 }
    }

    /// Writes what its manner wants written now.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn step(&mut self, ledger: &Mutex<Ledger>) -> io::Result<()> {
        let left = lock(ledger).left(self.id);
        match self.open.take() {
            Some(list) if left < GROWTH_BELOW => self.grow(ledger, list),
            Some(list) => {
                self.open = Some(list);
                Ok(())
            }
            None if left == 0 || self.manner == Manner::Hasty && left < self.lines / 2 => {
                self.begin(ledger)
            }
            None => Ok(()),
        }
    }

    /// A new list. One of an earlier run that was left unfinished goes first, as fetchers do it.
    fn begin(&mut self, ledger: &Mutex<Ledger>) -> io::Result<()> {
        lock(ledger).give_up(self.id);
        remove(self.path(".txt.part"))?;
        self.id.1 += 1;
        self.written = 0;
        let list = File::create(self.path(".txt.part"))?;
        self.grow(ledger, list)
    }

    fn grow(&mut self, ledger: &Mutex<Ledger>, mut list: File) -> io::Result<()> {
        let whole = matches!(self.manner, Manner::Whole | Manner::Hasty);
        let more = if whole { self.lines } else { GROWTH.min(self.lines - self.written) };
        let lines = self.written..self.written + more;
        lock(ledger).write(self.id, more);
        list.write_all(
            lines.map(|index| line(self.keys, index, self.id)).collect::<String>().as_bytes(),
        )?;
        self.written += more;
        if self.written < self.lines {
            self.open = Some(list);
            return Ok(());
        }
        self.end()
    }

    /// The old list goes an instant before the new one gets its name.
    fn end(&mut self) -> io::Result<()> {
        if self.manner == Manner::Failing {
            return Ok(());
        }
        let new = self.path(".txt");
        self.id.1 -= 1;
        remove(self.path(".txt"))?;
        self.id.1 += 1;
        fs::rename(self.path(".txt.part"), new)
    }

    fn path(&self, ending: &str) -> PathBuf {
        self.input.join(format!("{}{}.{}{ending}", self.keys, self.id.0, self.id.1))
    }
}

fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

fn remove(path: PathBuf) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
