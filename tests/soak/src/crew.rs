//! A spool of its own among processes that are killed at random for as long as the soak lasts: nothing that
//! was acknowledged may be lost, nothing worked on twice but after the death of who had it, counted as
//! another attempt; and a repair leaves nothing.
//!
//! One of the soak's parts. Each process is a [`hand`].

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use shiftspool::{FsckOptions, Spool};

use crate::Soak;
use crate::hand::{self, Role};
use crate::random::Random;

/// Who is there at any time.
const ROLES: [Role; 6] =
    [Role::Produce, Role::Produce, Role::First, Role::First, Role::Second, Role::Second];
/// Longest time between two kills.
const LIFE_MAX: u64 = 200;
/// How long the consumers may take for what is left.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// The processes that live.
struct Crew {
    base: PathBuf,
    hands: Vec<(Role, u32, Child)>,
    next: u32,
    killed: HashSet<u32>,
    random: Random,
}

/// Plays the part until the load ends, works off what is left, and judges.
///
/// # Errors
/// When no process can be started, or what they did cannot be read.
pub fn run(soak: &Soak) -> io::Result<()> {
    let base = soak.home.join("crew");
    fs::create_dir(&base)?;
    let spool = hand::spool(&base)?;
    let mut crew = Crew::new(base);
    ROLES.iter().try_for_each(|role| crew.start(*role))?;
    while soak.goes_on(Duration::from_millis(crew.random.below(LIFE_MAX))) {
        let index = crew.random.below(ROLES.len() as u64) as usize;
        let role = crew.kill(soak, index)?;
        crew.start(role)?;
    }
    crew.work_off(soak, &spool)?;
    crew.judge(soak)?;
    repair(soak, &spool)
}

impl Crew {
    fn new(base: PathBuf) -> Self {
        let random = Random::new(Random::seed());
        Self { base, hands: Vec::new(), next: 0, killed: HashSet::new(), random }
    }

    fn start(&mut self, role: Role) -> io::Result<()> {
        let id = self.next;
        self.next += 1;
        let log = File::options().append(true).create(true).open(self.base.join("log"))?;
        let name = role.to_possible_value().map(|value| value.get_name().to_owned());
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("hand").arg(name.unwrap_or_default()).arg(id.to_string()).arg(&self.base);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn()?;
        self.hands.push((role, id, child));
        Ok(())
    }

    /// Kills one; its role. One that had ended by itself is a fault.
    fn kill(&mut self, soak: &Soak, index: usize) -> io::Result<Role> {
        let (role, id, mut child) = self.hands.remove(index);
        if let Some(status) = child.try_wait()? {
            soak.fault(format!("{role:?} {id} of the crew ended with {status}: {}", self.log()));
        }
        self.killed.insert(id);
        child.kill()?;
        child.wait()?;
        Ok(role)
    }

    fn log(&self) -> String {
        fs::read_to_string(self.base.join("log")).unwrap_or_default()
    }

    /// Ends the producers; the consumers have what is left, without a repair.
    fn work_off(&mut self, soak: &Soak, spool: &Spool) -> io::Result<()> {
        while let Some(index) = self.hands.iter().position(|(role, ..)| *role == Role::Produce) {
            self.kill(soak, index)?;
        }
        let since = Instant::now();
        while left(spool)? > 0 {
            if since.elapsed() > PATIENCE {
                soak.fault(format!(
                    "{} entries of the crew are left: {}",
                    left(spool)?,
                    self.log()
                ));
                break;
            }
            thread::sleep(LOOK);
        }
        fs::write(self.base.join("over"), "")?;
        for (role, id, mut child) in std::mem::take(&mut self.hands) {
            let status = child.wait()?;
            if !status.success() {
                soak.fault(format!("{role:?} {id} ended with {status}: {}", self.log()));
            }
        }
        Ok(())
    }

    /// Holds what was acknowledged against what was worked on.
    fn judge(&self, soak: &Soak) -> io::Result<()> {
        let (acknowledged, worked) =
            (lines(&self.base, "acknowledged")?, lines(&self.base, "worked")?);
        let mut works: BTreeMap<(&str, &str), Vec<(u32, u32)>> = BTreeMap::new();
        for line in worked.lines() {
            let parts: Vec<_> = line.split(' ').collect();
            let [queue, name, id, attempt] = parts[..] else {
                soak.fault(format!("a line of the crew: {line:?}"));
                continue;
            };
            let number = |text: &str| text.parse().map_err(io::Error::other);
            works.entry((queue, name)).or_default().push((number(id)?, number(attempt)?));
        }
        let mut count = 0;
        for name in acknowledged.lines() {
            count += 1;
            if !works.contains_key(&("out", name)) {
                soak.fault(format!("{name} was acknowledged, and is lost"));
            }
        }
        let mut again = 0;
        for (entry, by) in &works {
            again += by.len() - 1;
            for pair in by.windows(2) {
                let [(before, attempt), (_, next)] = pair else { continue };
                if !self.killed.contains(before) || next <= attempt {
                    soak.fault(format!("{entry:?} was worked on twice, by (who, attempt) {by:?}"));
                }
            }
        }
        let kills = self.killed.len();
        println!(
            "crew            {count} entries, {kills} kills, {again} worked on again after one"
        );
        Ok(())
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        for (_, _, child) in &mut self.hands {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What was noted; nothing if nobody came to it.
fn lines(base: &Path, file: &str) -> io::Result<String> {
    match fs::read_to_string(base.join(file)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

fn left(spool: &Spool) -> io::Result<usize> {
    let mut left = 0;
    for name in ["in", "out"] {
        let queue = hand::queue(name)?;
        left += spool.list(&queue).map_err(io::Error::other)?.len();
        left += spool.list_checkouts(&queue).map_err(io::Error::other)?.len();
    }
    Ok(left)
}

/// What the kills left is mended, all of it, and then there is nothing.
fn repair(soak: &Soak, spool: &Spool) -> io::Result<()> {
    let options = FsckOptions { repair: true, older_than: None };
    let first = spool.fsck(options).map_err(io::Error::other)?;
    let second = spool.fsck(options).map_err(io::Error::other)?;
    if !first.is_mended() || !second.is_clean() {
        soak.fault(format!(
            "a repair left something: {:?}, then {:?}",
            first.findings, second.findings
        ));
    }
    for directory in [".registry", ".data", ".tmp", ".shiftboss/claims", ".shiftboss/quarantine"] {
        let left = fs::read_dir(spool.path().join(directory))?.count();
        if left > 0 {
            soak.fault(format!("{left} files are left in the crew's {directory}"));
        }
    }
    println!("crew            {} things mended after it", first.findings.len());
    Ok(())
}
