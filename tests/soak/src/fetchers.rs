//! The fetchers: lists that are written, grow, are left unfinished, and are replaced.
//!
//! One thread plays all of them in turn. A fetcher goes on when the workers have got far enough with
//! its last list, so that work never ends and never heaps up either. Every new run lists the same
//! keys again.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Soak;
use crate::ledger::{RunId, line};
use crate::site::Site;

/// Pause between two looks at all fetchers.
const PAUSE: Duration = Duration::from_millis(10);
/// Lines that a growing list gets at once, and the lines left of it at which it gets more.
const GROWTH: usize = 500;
const GROWTH_BELOW: usize = 2_000;
/// Jobs that may be handed out while none of a list's lines is. It is no time, since a disk may be slow: a key
/// that ran waits until all others, 120,000 and those of tasks and edits, had their turn.
const PATIENCE_JOBS: u64 = 300_000;

/// How a fetcher writes its lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// At once; the next when all is done.
    Whole,
    /// The same, but the next one comes when half is done.
    Hasty,
    /// Bit by bit, and completed at its end.
    Growing,
    /// Bit by bit, and never completed: the fetcher failed.
    Failing,
}

/// At full load: manner, first word of the keys, and lines of each list. Two list the same keys, and one has so
/// few that its runs come and go all the time.
const CALM: [(Manner, &str, usize); 7] = [
    (Manner::Whole, "shared", 20_000),
    (Manner::Whole, "shared", 20_000),
    (Manner::Whole, "large", 60_000),
    (Manner::Whole, "few", 100),
    (Manner::Hasty, "hasty", 10_000),
    (Manner::Growing, "growing", 20_000),
    (Manner::Failing, "failing", 10_000),
];
/// Under faults: of each daemon or relay, in turn. One more list of each has keys that all have, a fifth as many.
const OWN: [(Manner, &str); 6] = [
    (Manner::Whole, "first"),
    (Manner::Whole, "second"),
    (Manner::Growing, "third"),
    (Manner::Hasty, "fourth"),
    (Manner::Whole, "fifth"),
    (Manner::Growing, "sixth"),
];
/// Lines of a daemon's own list for each minute of the run, and bounds of them.
const LINES_A_MINUTE: usize = 250;
const LINES: [usize; 2] = [400, 2_000];

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
    /// The jobs of all fetchers when a line of it ended last, and how many were left then.
    moved: (u64, usize),
}

/// Those of a soak.
pub fn of(soak: &Soak, site: &Site) -> Vec<Fetcher> {
    let lines = LINES_A_MINUTE * soak.time.as_secs() as usize / 60;
    let lines = lines.clamp(LINES[0], LINES[1]);
    let inputs = || site.daemons.iter().map(|daemon| daemon.path("input"));
    let lists: Vec<_> = if soak.is_calm {
        CALM.iter().zip(inputs().cycle()).map(|(list, input)| (*list, input)).collect()
    } else {
        let own = OWN.iter().map(|(manner, keys)| (*manner, *keys, lines)).zip(inputs());
        own.chain(inputs().map(|input| ((Manner::Whole, "shared", lines / 5), input))).collect()
    };
    let fetcher = |(number, ((manner, keys, lines), input))| Fetcher {
        input,
        id: (number, 0),
        manner,
        keys,
        lines,
        open: None,
        written: 0,
        moved: (0, 0),
    };
    lists.into_iter().enumerate().map(fetcher).collect()
}

/// Plays all fetchers until the load ends.
pub fn run(soak: &Soak, mut fetchers: Vec<Fetcher>) -> io::Result<()> {
    while soak.goes_on(PAUSE) {
        fetchers.iter_mut().try_for_each(|fetcher| fetcher.step(soak))?;
    }
    Ok(())
}

impl Fetcher {
    /// Writes what its manner wants written now.
    fn step(&mut self, soak: &Soak) -> io::Result<()> {
        let left = self.look_at_waiting(soak);
        match self.open.take() {
            Some(list) if left < GROWTH_BELOW => self.grow(soak, list)?,
            Some(list) => self.open = Some(list),
            None if left == 0 || self.manner == Manner::Hasty && left < self.lines / 2 => {
                self.begin(soak)?;
            }
            None => {}
        }
        Ok(())
    }

    /// The lines that are left; that none of them was handed out for too many jobs is a fault.
    fn look_at_waiting(&mut self, soak: &Soak) -> usize {
        let (jobs, left) = (soak.jobs(), soak.ledger().left(self.id));
        if left == 0 || left != self.moved.1 {
            self.moved = (jobs, left);
        } else if jobs - self.moved.0 > PATIENCE_JOBS {
            let (run, keys) = (self.id, self.keys);
            soak.fault(&format!(
                "{left} lines of {keys} wait in run {run:?} while {PATIENCE_JOBS} jobs were handed out"
            ));
            self.moved.0 = jobs;
        }
        left
    }

    /// A new list. One of an earlier run that was left unfinished goes first, as fetchers do it.
    fn begin(&mut self, soak: &Soak) -> io::Result<()> {
        soak.ledger().give_up(self.id);
        remove(&self.path(self.id.1, "txt.part"))?;
        self.id.1 += 1;
        self.written = 0;
        let list = File::create(self.path(self.id.1, "txt.part"))?;
        self.grow(soak, list)
    }

    fn grow(&mut self, soak: &Soak, mut list: File) -> io::Result<()> {
        let whole = matches!(self.manner, Manner::Whole | Manner::Hasty);
        let more = if whole { self.lines } else { GROWTH.min(self.lines - self.written) };
        let lines = self.written..self.written + more;
        soak.ledger().write(self.id, self.keys, more);
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
        remove(&self.path(self.id.1 - 1, "txt"))?;
        fs::rename(self.path(self.id.1, "txt.part"), self.path(self.id.1, "txt"))
    }

    fn path(&self, run: u64, ending: &str) -> PathBuf {
        self.input.join(format!("{}{}.{run}.{ending}", self.keys, self.id.0))
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
