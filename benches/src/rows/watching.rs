//! Row 15: what it costs to watch a large tree with `shiftboss on-change`, and how soon it answers.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Setting;
use crate::report::{Figure, ms};
use crate::servers::new_home;

/// Directories of the tree: so many, with so many in each, with so many in each of those.
const TREE: [usize; 3] = [100, 10, 100];
/// Changes that are timed.
const TRIES: usize = 100;
const DEBOUNCE: Duration = Duration::from_millis(100);
/// For how long it is watched doing nothing.
const IDLE: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_micros(200);
const PATIENCE: Duration = Duration::from_secs(60);
/// Targets: to watch, memory in kB, beyond the debounce.
const TARGETS: (Duration, u64, Duration) =
    (Duration::from_secs(2), 60_000, Duration::from_millis(20));

/// A running `on-change`, whose command adds a byte to a file.
struct Watcher {
    child: Child,
    home: TempDir,
    watched: Duration,
}

pub fn rows(setting: &Setting) -> io::Result<Vec<Figure>> {
    let watcher = Watcher::start(&setting.program)?;
    wait(|| Ok(watcher.runs()? > 0))?;
    std::thread::sleep(IDLE / 10);
    let (memory, before) = (watcher.memory()?, watcher.processor()?);
    std::thread::sleep(IDLE);
    let spent = watcher.processor()? - before;
    let mut times = (0..TRIES).map(|_| watcher.answer()).collect::<io::Result<Vec<_>>>()?;
    times.sort_unstable();
    let (half, most, max) = (times[TRIES / 2], times[TRIES * 99 / 100], times[TRIES - 1]);
    let figure = |what: &str, measured: String, target, met| Figure {
        row: 15,
        what: what.to_owned(),
        measured,
        compared: String::new(),
        target,
        met: Some(met),
    };
    Ok(vec![
        figure(
            "on-change: 101,101 directories are watched",
            format!("{}, {:.1} MB", ms(watcher.watched), memory as f64 / 1000.0),
            "2 s, 60 MB",
            watcher.watched <= TARGETS.0 && memory <= TARGETS.1,
        ),
        figure(
            "the same, idle for 10 s",
            format!("{spent} ticks of processor time"),
            "none",
            spent == 0,
        ),
        figure(
            "from the last change to the command's first write, beyond the debounce",
            format!("p50 {}, p99 {}, max {}", ms(half), ms(most), ms(max)),
            "20 ms",
            max <= TARGETS.2,
        ),
    ])
}

impl Watcher {
    fn start(program: &Path) -> io::Result<Self> {
        let home = new_home()?;
        for outer in 0..TREE[0] * TREE[1] {
            let path = home.path().join(format!("tree/{}/{}", outer / TREE[1], outer % TREE[1]));
            for inner in 0..TREE[2] {
                fs::create_dir_all(path.join(inner.to_string()))?;
            }
        }
        // The kernel writes so many new directories out half a minute later, in the middle of the tries.
        rustix::fs::syncfs(File::open(home.path())?)?;
        fs::create_dir(home.path().join("runtime"))?;
        let log = File::create(home.path().join("log"))?;
        let begun = Instant::now();
        let child = Command::new(program)
            .args(["on-change", "--debounce", "100ms", "--cooldown", "0s", "tree", "--"])
            .args(["sh", "-c", "printf x >> runs"])
            .current_dir(home.path())
            .env("XDG_RUNTIME_DIR", home.path().join("runtime"))
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()?;
        let mut watcher = Self { child, home, watched: Duration::ZERO };
        let log = watcher.home.path().join("log");
        wait(|| Ok(fs::read_to_string(&log)?.contains("Watching.")))?;
        watcher.watched = begun.elapsed();
        Ok(watcher)
    }

    /// Changes a file, and times the run that follows it, without the debounce.
    fn answer(&self) -> io::Result<Duration> {
        let runs = self.runs()?;
        File::create(self.home.path().join("tree/5/5/5/file"))?.write_all(b"x")?;
        let begun = Instant::now();
        wait(|| Ok(self.runs()? > runs))?;
        let took = begun.elapsed().saturating_sub(DEBOUNCE);
        // The next change is not to come while this run is on.
        std::thread::sleep(DEBOUNCE / 2);
        Ok(took)
    }

    fn runs(&self) -> io::Result<u64> {
        Ok(fs::metadata(self.home.path().join("runs")).map_or(0, |metadata| metadata.len()))
    }

    /// In kB.
    fn memory(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let word = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        word.ok_or_else(|| io::Error::other("no VmHWM"))
    }

    /// Its own and the system's time for it, in ticks.
    fn processor(&self) -> io::Result<u64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let words = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
        Ok(words.filter_map(|word| word.parse::<u64>().ok()).sum())
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait(holds: impl Fn() -> io::Result<bool>) -> io::Result<()> {
    let begun = Instant::now();
    while !holds()? {
        if begun.elapsed() > PATIENCE {
            return Err(io::Error::other("on-change does not answer"));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
