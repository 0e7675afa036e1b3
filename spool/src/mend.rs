//! The classes of damage, one function each, in the order in which they are mended: first what others
//! hold, then what is in the wrong place, then what belongs to nothing. Used by fsck alone.

use std::collections::HashSet;
use std::path::Path;

use rustix::io::Errno;

use super::Spool;
use super::error::{self, Result};
use super::files;
use super::fsck::{Check, Finding};
use super::layer::How;
use super::layout::{
    CLAIMS, DATA, DRAFTS, MOVING, STRAYS, TMP, available, checked_out, joined, under,
};
use super::name::{EntryName, QueueName};
use super::survey::{Place, Survey, registration};

/// Looks for everything, and mends it if the check does.
pub(super) fn all(check: &mut Check<'_>) -> Result<()> {
    unread_notes(check)?;
    dead_owners(check)?;
    strays(check)?;
    stranded(check)?;
    // What was mended must be seen as it is now.
    duplicates(check, &check.spool.survey()?)?;
    let survey = check.spool.survey()?;
    checkouts(check, &survey)?;
    queues(check, &survey)?;
    drafts(check, &survey)?;
    let survey = check.spool.survey()?;
    orphans(check, &survey)?;
    counts(check)
}

fn dead_owners(check: &mut Check<'_>) -> Result<()> {
    let spool = check.spool;
    if check.repairs() {
        for given in spool.reclaim_locked(true)? {
            let path = available(&given.to, &given.name);
            check.mended(Finding::DeadOwner, &path, "given back");
        }
        return Ok(());
    }
    let dead = spool.dead_owners()?;
    for (name, note) in spool.overdue(&dead, true)? {
        let path = checked_out(&note.queue, &name);
        if files::exists(spool.layer(), &path)? {
            check.found(Finding::DeadOwner, &path, "given back", || Ok(true));
        }
    }
    Ok(())
}

/// What somebody was moving who has no note of it: from where, nobody knows.
fn stranded(check: &mut Check<'_>) -> Result<()> {
    let spool = check.spool;
    for name in spool.survey()?.moving {
        let path = under(MOVING, &name);
        if spool.note(&name)?.is_none() && check.is_left(&path)? {
            let action = "moved to .shiftboss/quarantine";
            check.found(Finding::Unowned, &path, action, || {
                spool.holding(&name, || spool.set_aside(&name, &path).map(|()| true))
            });
        }
    }
    Ok(())
}

fn strays(check: &mut Check<'_>) -> Result<()> {
    let spool = check.spool;
    for (place, name) in spool.survey()?.strangers {
        let path = joined(&place.path(), &name);
        if check.is_left(&path)? {
            let action = format!("moved to {STRAYS}");
            check.found(Finding::Stray, &path, &action, || spool.put_aside(&path));
        }
    }
    Ok(())
}

/// Of the places of one entry, a queue is later than a checkout, for what saves back writes the one
/// before it takes away the other; of two queues the one that was touched last.
fn duplicates(check: &mut Check<'_>, survey: &Survey) -> Result<()> {
    let spool = check.spool;
    for (name, places) in survey.duplicated() {
        let mut ranked = Vec::new();
        for place in &places {
            if let Ok(stat) = spool.layer().stat(&place.file(name)) {
                ranked.push((matches!(place, Place::Queue(_)), stat.modified, place));
            }
        }
        ranked.sort();
        let keeps = ranked.pop();
        if keeps.is_none() || ranked.is_empty() {
            continue;
        }
        for (_, _, place) in ranked {
            let path = place.file(name);
            if check.is_left(&path)? {
                let action = format!("moved to {STRAYS}: it is in another queue as well");
                check.found(Finding::Duplicated, &path, &action, || {
                    spool.holding(name, || spool.put_aside(&path))
                });
            }
        }
    }
    Ok(())
}

fn checkouts(check: &mut Check<'_>, survey: &Survey) -> Result<()> {
    let spool = check.spool;
    let doubled: HashSet<_> = survey.duplicated().into_iter().map(|(name, _)| name).collect();
    for (place, names) in &survey.placed {
        let Place::Checkout(queue) = place else { continue };
        for name in names {
            let path = checked_out(queue, name);
            if doubled.contains(name) || spool.note(name)?.is_some() || !check.is_left(&path)? {
                continue;
            }
            if survey.data.contains(name) {
                check.found(Finding::Unowned, &path, "given back", || {
                    spool.holding(name, || give_back(spool, queue, name))
                });
            } else {
                check.found(Finding::HalfRemoved, &path, "removed", || {
                    spool.holding(name, || {
                        files::remove(spool.layer(), &path)?;
                        spool.remove_rest(name).map(|()| true)
                    })
                });
            }
        }
    }
    Ok(())
}

fn give_back(spool: &Spool, queue: &QueueName, name: &EntryName) -> Result<bool> {
    let (from, to) = (checked_out(queue, name), available(queue, name));
    match spool.layer().rename(&from, &to) {
        Ok(()) => register(spool, name).map(|_| true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(error::io("give back", &from)(errno)),
    }
}

/// Registers a name; whether it was not.
fn register(spool: &Spool, name: &EntryName) -> Result<bool> {
    let path = registration(name);
    match spool.layer().open(&path, How::New) {
        Ok(_) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(errno) => Err(error::io("register", &path)(errno)),
    }
}

fn queues(check: &mut Check<'_>, survey: &Survey) -> Result<()> {
    for (place, names) in &survey.placed {
        let Place::Queue(queue) = place else { continue };
        for name in names {
            available_entry(check, survey, queue, name)?;
        }
    }
    Ok(())
}

fn available_entry(
    check: &mut Check<'_>,
    survey: &Survey,
    queue: &QueueName,
    name: &EntryName,
) -> Result<()> {
    let spool = check.spool;
    let (registered, data) = (survey.registry.contains(name), survey.data.contains(name));
    let path = available(queue, name);
    if registered && data && is_readable(spool, &path) || !check.is_left(&path)? {
        return Ok(());
    }
    match (registered, data) {
        (false, true) => check.found(Finding::Unregistered, &path, "registered again", || {
            spool.holding(name, || {
                Ok(files::exists(spool.layer(), &path)? && register(spool, name)?)
            })
        }),
        (false, false) => {
            let action = format!("moved to {STRAYS}: it has neither a name nor data");
            check.found(Finding::Stray, &path, &action, || spool.put_aside(&path));
        }
        (true, data) => {
            let finding = if data { Finding::Unreadable } else { Finding::WithoutData };
            let action = "moved to .shiftboss/quarantine";
            check.found(finding, &path, action, || quarantine(spool, name, &path));
        }
    }
    Ok(())
}

/// Whether a file can be opened, or is gone.
fn is_readable(spool: &Spool, path: &Path) -> bool {
    matches!(spool.layer().open(path, How::Read), Ok(_) | Err(Errno::NOENT))
}

/// Sets an entry aside, if it is there and still without data, or unreadable.
fn quarantine(spool: &Spool, name: &EntryName, path: &Path) -> Result<bool> {
    spool.holding(name, || {
        let whole = files::exists(spool.layer(), &under(DATA, name))? && is_readable(spool, path);
        if whole || !files::exists(spool.layer(), path)? {
            return Ok(false);
        }
        spool.set_aside(name, path).map(|()| true)
    })
}

fn drafts(check: &mut Check<'_>, survey: &Survey) -> Result<()> {
    let spool = check.spool;
    let others_live = spool.others_live()?;
    let mut ours = Vec::new();
    for entry in spool.layer().list(Path::new(DRAFTS)).unwrap_or_default() {
        let path = joined(Path::new(DRAFTS), &entry.name);
        // Those that are no data may be just being written by a consumer, as long as there is one.
        if !spool.is_being_written(&path)?.unwrap_or(others_live) {
            ours.push(path);
        }
    }
    for path in survey.tmp.iter().map(|name| under(TMP, name)).chain(ours) {
        if check.is_left(&path)? {
            check.found(Finding::HalfWritten, &path, "deleted", || {
                files::remove(spool.layer(), &path)
            });
        }
    }
    Ok(())
}

fn orphans(check: &mut Check<'_>, survey: &Survey) -> Result<()> {
    let spool = check.spool;
    let living = survey.living();
    let mut data: Vec<_> =
        survey.data.iter().filter(|name| !survey.registry.contains(name)).collect();
    data.retain(|name| !living.contains(name));
    data.sort();
    for name in data {
        let path = under(DATA, name);
        if check.is_left(&path)? {
            check.found(Finding::OrphanedData, &path, "deleted", || {
                files::remove(spool.layer(), &path)
            });
        }
    }
    for name in survey.unplaced() {
        let path = registration(name);
        if !check.is_left(&path)? || spool.is_held(name)? || !spool.is_unseen(name)? {
            continue;
        }
        check.found(Finding::OrphanedName, &path, "given up, with its data", || {
            spool.holding(name, || {
                let left = spool.is_unseen(name)?;
                if left {
                    spool.remove_rest(name)?
                };
                Ok(left)
            })
        });
    }
    Ok(())
}

/// Notes that nobody can read. Their entries are nobody's from then on.
fn unread_notes(check: &mut Check<'_>) -> Result<()> {
    let spool = check.spool;
    for name in spool.noted()? {
        let path = under(CLAIMS, &name);
        if spool.note(&name)?.is_none() && files::exists(spool.layer(), &path)? {
            check.found(Finding::Stale, &path, "deleted", || files::remove(spool.layer(), &path));
        }
    }
    Ok(())
}

/// What was noted of entries that are gone.
fn counts(check: &mut Check<'_>) -> Result<()> {
    let spool = check.spool;
    for path in spool.stale()? {
        check.found(Finding::Stale, &path, "deleted", || files::remove(spool.layer(), &path));
    }
    Ok(())
}
