//! Makes a queue again from what was saved of a damaged database: parts whose key is lost are deleted, and derived data
//! (places, counts) is derived from the existing records.

use std::sync::Arc;

use rusqlite::{Connection, Result};
use shiftboss_queue::context::Context;
use shiftboss_queue::counts::Tally;
use shiftboss_queue::documents::{ARRIVING, DAEMON, Daemon, HOLDS, MOVED, PLACES};
use shiftboss_queue::record::{Millis, Record};
use shiftboss_queue::records::{Change, KeyId};
use shiftboss_queue::rules::clocks;

use crate::ask::Ask;
use crate::load::Loader;
use crate::save::Saver;
use crate::soundness::NUMBERS;
use crate::{documents, header};

const WHOLE: &str = include_str!("whole.sql");
/// What groups count, once all records are whole.
const GROUPS: &str = "UPDATE groups SET waiting = 0, tasks = 0, in_flight = 0;
    UPDATE groups SET waiting = n FROM (SELECT grp AS id, count(*) AS n FROM stands WHERE line = -2 GROUP BY 1) WHERE grp = id;
    UPDATE groups SET tasks = n FROM (SELECT id, count(*) AS n FROM (
        SELECT grp AS id FROM rows UNION ALL SELECT single_group FROM keys) GROUP BY 1) WHERE grp = id;
    UPDATE groups SET in_flight = n FROM (
        SELECT before ->> '$[4][0]' AS id, count(*) AS n FROM keys WHERE attempt IS NOT NULL GROUP BY 1) WHERE grp = id";
/// Keys in one step of deriving.
const STEP: i64 = 1_000;
/// If the header is lost, numbers continue this far after the highest ones that were found, because higher ones may
/// have been lost.
const NUMBERS_LEFT_OUT: i64 = 1_000_000;

pub(super) fn make_whole(connection: &Connection, now: Millis) -> Result<()> {
    connection.execute_batch(WHOLE)?;
    let daemon = documents::find(connection, DAEMON.name())?;
    let daemon = daemon.and_then(|text| Some(DAEMON.read("", &text)?.1));
    let settings = daemon.as_ref().map(Daemon::settings).unwrap_or_default();
    // A daemon with other rules derives places anew.
    let policy = daemon.map(|it| it.policy).unwrap_or_default();
    documents::write(connection, PLACES.name(), Some(&PLACES.text(&policy)))?;
    // If the queue was moved away, salvaging it means that it will be used here.
    for mark in [MOVED.name(), ARRIVING.name()] {
        documents::write(connection, mark, None)?;
    }
    let mut kept = header::load(connection)?;
    let holds = documents::find(connection, HOLDS.name())?;
    let holds = holds.and_then(|text| Some(HOLDS.read("", &text)?.1)).unwrap_or_default();
    let context =
        Context { holds: Arc::new(holds), ..kept.header.context(&Arc::new(settings), now) };
    // Saving changes neither number: all keys have their ids, and nothing ended.
    let (mut ids, mut ends) = (kept.ids, kept.ends);
    let saver = Saver::new(connection, &mut ids, &mut ends);
    let (counts, last_bump) = Deriving { connection, saver, context }.run()?;
    kept.header.counts = counts;
    let has_header: bool = connection.value("SELECT EXISTS (SELECT 1 FROM header)", [])?;
    let further = if has_header { 0 } else { NUMBERS_LEFT_OUT };
    let numbers = [
        &mut kept.header.last_attempt,
        &mut kept.header.last_single,
        &mut kept.ends,
        &mut kept.ids,
    ];
    for (number, (_, sql)) in numbers.into_iter().zip(NUMBERS) {
        *number = (*number).max(connection.value::<i64>(sql, [])?.saturating_add(further));
    }
    kept.header.last_bump = kept.header.last_bump.max(last_bump);
    // The copied parts are replaced by complete ones.
    connection.execute_batch("DELETE FROM names; DELETE FROM runs; DELETE FROM counts")?;
    header::save_all(connection, &kept)?;
    let armed = "UPDATE rows SET armed = last_attempt FROM header WHERE armed > last_attempt";
    connection.execute(armed, []).map(drop)
}

struct Deriving<'a> {
    connection: &'a Connection,
    saver: Saver<'a>,
    context: Context,
}

impl Deriving<'_> {
    /// The counts of all, and the last place that was given in the lane.
    fn run(mut self) -> Result<(Tally, i64)> {
        let (mut counts, mut last_bump, mut from) = (Tally::default(), 0, i64::MIN);
        loop {
            let sql = "SELECT id FROM keys WHERE id >= ?1 ORDER BY id LIMIT ?2";
            let ids: Vec<i64> = self.connection.values(sql, (from, STEP))?;
            let next = ids.last().and_then(|last| last.checked_add(1));
            for id in ids {
                let Some(record) = self.one(KeyId(id))? else { continue };
                let mut change = Tally::default();
                change.change(&Record::new(record.key.clone()), &record);
                counts.merge(&change);
                let lanes = record.extras.retries.iter().map(|it| it.lane);
                let bump = record.extras.bump.iter().map(|it| it.number);
                last_bump = lanes.chain(bump).fold(last_bump, i64::max);
            }
            let Some(next) = next else {
                self.saver.standings.settle(self.connection, &[])?;
                self.connection.execute_batch(GROUPS)?;
                return Ok((counts, last_bump));
            };
            from = next;
        }
    }

    /// A record, with its place; one that cannot be read loses its extras, or is deleted.
    fn one(&mut self, id: KeyId) -> Result<Option<Record>> {
        let mut loader = Loader::new(self.connection);
        if loader.by_id(id).is_err() {
            self.connection.execute("DELETE FROM extras WHERE key = ?1", [id.0])?;
            self.connection.execute("UPDATE keys SET extra = 0 WHERE id = ?1", [id.0])?;
        }
        let Ok(Some(stored)) = loader.by_id(id) else {
            self.saver.forget(id)?;
            return Ok(None);
        };
        let mut record = stored.record.clone();
        // Not tidied: data of lost tasks is kept, because the lists bring these back.
        clocks::look(&mut record, &self.context);
        let place = record.place(&self.context);
        self.saver.standings.change(self.connection, id, &[], &stored.place.standings())?;
        if (&record, &place) != (&stored.record, &stored.place) {
            let (key, now) = (record.key.clone(), Some((Box::new(record.clone()), place)));
            self.saver.change(Change { before: Some(Box::new(stored)), key, now })?;
        }
        Ok(Some(record))
    }
}
