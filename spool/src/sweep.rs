//! What is left in `.shiftboss` by processes that died, and by programs that do not look there. Removed in
//! passing by who waits for entries; what nobody can judge but with producers stopped is fsck's.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::io::Errno;

use super::Spool;
use super::error::{self, Result};
use super::files;
use super::layout::{ATTEMPTS, DRAFTS, REASONS, REGISTRY, joined, under};
use super::name::EntryName;
use super::spare;

/// A half-written file whose writer has no record is nobody's when it is so old.
const DRAFT_AGE: Duration = Duration::from_secs(600);

impl Spool {
    /// Removes half-written files that nobody writes any more, and what is noted of entries that another
    /// program ended.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn sweep(&self) -> Result<()> {
        spare::keep(self.layer());
        for path in self.drafts()? {
            if self.is_old(&path)? && self.is_being_written(&path)? != Some(true) {
                files::remove(self.layer(), &path)?;
            }
        }
        self.stale()?.iter().try_for_each(|path| files::remove(self.layer(), path).map(drop))
    }

    /// What is noted beside entries that are not there any more.
    pub(super) fn stale(&self) -> Result<Vec<PathBuf>> {
        let mut stale = Vec::new();
        for directory in [ATTEMPTS, REASONS] {
            let listed = self.layer().list(Path::new(directory)).unwrap_or_default();
            for name in listed.iter().filter_map(|file| EntryName::new(&file.name).ok()) {
                if !files::exists(self.layer(), &under(REGISTRY, &name))? {
                    stale.push(under(directory, &name));
                }
            }
        }
        Ok(stale)
    }

    /// Removes what the owners of these records were writing when they died.
    pub(super) fn remove_drafts(&self, dead: &HashSet<String>) -> Result<()> {
        for path in self.drafts()? {
            if files::draft_owner(&path).is_some_and(|id| dead.contains(id)) {
                files::remove(self.layer(), &path)?;
            }
        }
        Ok(())
    }

    fn drafts(&self) -> Result<Vec<PathBuf>> {
        let path = Path::new(DRAFTS);
        let listed = self.layer().list(path).map_err(error::io("list", path))?;
        Ok(listed.iter().map(|file| joined(path, &file.name)).collect())
    }

    /// Whether a file is older than anything that is being written by a process without a record. One with
    /// a record may rest as long as it lives.
    fn is_old(&self, path: &Path) -> Result<bool> {
        let owner = files::draft_owner(path).map(super::owner::path_of);
        if owner.is_some_and(|record| self.layer().stat(&record).is_ok()) {
            return Ok(false);
        }
        match self.layer().stat(path) {
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(error::io("look at", path)(errno)),
            Ok(stat) => {
                let age = SystemTime::now().duration_since(stat.modified).unwrap_or_default();
                Ok(age > DRAFT_AGE)
            }
        }
    }
}
