//! Where keys of groups stand, and those of fetchers that workers name: kept mechanically as their places say, with the
//! first key of each group beside it.

use std::collections::BTreeSet;

use rusqlite::{Connection, Result, Row};
use shiftboss_queue::groups::GroupId;
use shiftboss_queue::listings::GroupSeen;
use shiftboss_queue::place::Standing;
use shiftboss_queue::record::Millis;
use shiftboss_queue::records::{GroupChange, KeyId, Opens};
use shiftboss_queue::rules::groups::{Group, Opening};

use crate::ask::Ask;
use crate::code;

const FIRST: &str =
    "SELECT at, key FROM stands WHERE grp = ?1 AND line = ?2 ORDER BY at, key LIMIT 1";
const HEAD: &str = "SELECT at, key FROM heads WHERE grp = ?1 AND line = ?2";
const NEW_HEAD: &str = "INSERT INTO heads (grp, line, at, key, open)
    VALUES (?1, ?2, ?3, ?4, coalesce((SELECT kind = 0 FROM groups WHERE groups.grp = ?1), 1))";
const MOVE_HEAD: &str = "UPDATE heads SET at = ?3, key = ?4 WHERE grp = ?1 AND line = ?2";
const NO_HEAD: &str = "DELETE FROM heads WHERE grp = ?1 AND line = ?2";

/// See the module. Groups and lines whose first key may be another one by now.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    stale: BTreeSet<(i64, i64)>,
}

impl Standings {
    /// A key stands elsewhere.
    pub(crate) fn change(
        &mut self,
        connection: &Connection,
        id: KeyId,
        before: &[Standing],
        now: &[Standing],
    ) -> Result<()> {
        let leave = "DELETE FROM stands WHERE grp = ?1 AND line = ?2 AND at = ?3 AND key = ?4";
        let come = "INSERT OR IGNORE INTO stands (grp, line, at, key) VALUES (?1, ?2, ?3, ?4)";
        let left = before.iter().filter(|it| !now.contains(it)).map(|it| (leave, it));
        let came = now.iter().filter(|it| !before.contains(it)).map(|it| (come, it));
        for (sql, it) in left.chain(came) {
            let (group, line) = (code::group(it.group), code::line(it.line));
            connection.prepare_cached(sql)?.execute((group, line, it.at, id.0))?;
            if group != 0 {
                self.stale.insert((group, line));
            }
        }
        Ok(())
    }

    /// Writes the first keys of groups, once all keys are written.
    pub(crate) fn settle(self, connection: &Connection, groups: &[GroupChange]) -> Result<()> {
        for it in groups {
            write(connection, it)?;
        }
        for it in self.stale {
            note_head(connection, it)?;
        }
        Ok(())
    }
}

fn note_head(connection: &Connection, (group, line): (i64, i64)) -> Result<()> {
    let place = |row: &Row<'_>| row.try_into();
    let first: Option<(i64, i64)> = connection.first(FIRST, (group, line), place)?;
    let head: Option<(i64, i64)> = connection.first(HEAD, (group, line), place)?;
    let sql = match (first, head) {
        (first, head) if first == head => return Ok(()),
        (Some(_), Some(_)) => MOVE_HEAD,
        (Some(_), None) => NEW_HEAD,
        (None, _) => return connection.prepare_cached(NO_HEAD)?.execute((group, line)).map(drop),
    };
    let (at, key) = first.unwrap_or_default();
    connection.prepare_cached(sql)?.execute((group, line, at, key)).map(drop)
}

/// Most changes leave the group as open as it was, and half of them as many keys waiting: of such ones no index is written,
/// and no head.
fn write(connection: &Connection, change: &GroupChange) -> Result<()> {
    let id = change.id.0;
    let Some(group) = &change.group else {
        let sql = "DELETE FROM groups WHERE grp = ?1";
        return connection.prepare_cached(sql)?.execute([id]).map(drop);
    };
    let Group { in_flight, waiting, tasks, .. } = group;
    let (kind, state) = (code::opening(change.opening), code::json(group)?);
    for sql in [
        "UPDATE groups SET in_flight = ?4, tasks = ?5, state = ?6
        WHERE grp = ?1 AND kind = ?2 AND opens IS ?3 AND waiting = ?7",
        "UPDATE groups SET in_flight = ?4, tasks = ?5, state = ?6, waiting = ?7
        WHERE grp = ?1 AND kind = ?2 AND opens IS ?3",
    ] {
        let values = (id, kind, change.opens, in_flight, tasks, &state, waiting);
        if connection.prepare_cached(sql)?.execute(values)? > 0 {
            return Ok(());
        }
    }
    let sql =
        "INSERT INTO groups (grp, name, kind, opens, in_flight, waiting, tasks, state)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
        ON CONFLICT (grp) DO UPDATE SET kind = ?3, opens = ?4, in_flight = ?5, waiting = ?6, tasks = ?7, state = ?8";
    let values = (id, &*group.name, kind, change.opens, in_flight, waiting, tasks, state);
    connection.prepare_cached(sql)?.execute(values)?;
    let sql = "UPDATE heads SET open = ?2 WHERE grp = ?1 AND open <> ?2";
    let is_open = change.opening == Opening::Open;
    connection.prepare_cached(sql)?.execute((id, is_open)).map(drop)
}

fn read(row: &Row<'_>) -> Result<Group> {
    let group: Group = code::json_of(row.get_ref(0)?)?;
    Ok(Group { in_flight: row.get(1)?, waiting: row.get(2)?, tasks: row.get(3)?, ..group })
}

pub(crate) fn group(connection: &Connection, id: GroupId) -> Result<Option<Group>> {
    let sql = "SELECT state, in_flight, waiting, tasks FROM groups WHERE grp = ?1";
    connection.first(sql, [id.0], read)
}

pub(crate) fn opening(
    connection: &Connection,
    (opens, id): Opens,
    until: Millis,
    count: usize,
) -> Result<Vec<(Opens, Group)>> {
    let sql = "SELECT state, in_flight, waiting, tasks, opens, grp FROM groups INDEXED BY opening
        WHERE opens <= ?3 AND (opens, grp) > (?1, ?2) ORDER BY opens, grp LIMIT ?4";
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    connection.rows(sql, (opens, id.0, until, count), |row| {
        Ok(((row.get(4)?, GroupId(row.get(5)?)), read(row)?))
    })
}

pub(crate) fn of_kind(connection: &Connection, kind: i64, count: i64) -> Result<Vec<GroupSeen>> {
    let sql = "SELECT state, in_flight, waiting, tasks, kind, opens FROM groups INDEXED BY kinds
        WHERE kind = ?1 ORDER BY waiting DESC, grp DESC LIMIT ?2";
    connection.rows(sql, (kind, count), seen)
}

pub(crate) fn look_at(connection: &Connection, id: GroupId) -> Result<Option<GroupSeen>> {
    let sql = "SELECT state, in_flight, waiting, tasks, kind, opens FROM groups WHERE grp = ?1";
    connection.first(sql, [id.0], seen)
}

fn seen(row: &Row<'_>) -> Result<GroupSeen> {
    Ok(GroupSeen { group: read(row)?, kind: row.get(4)?, opens: row.get(5)? })
}

pub(crate) fn counts(connection: &Connection) -> Result<Vec<(i64, i64, i64)>> {
    let sql = "SELECT kind, count(*), CAST(total(waiting) AS INTEGER) FROM groups INDEXED BY kinds GROUP BY kind";
    connection.rows(sql, (), |row| row.try_into())
}
