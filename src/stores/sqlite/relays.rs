//! Relays: who acts on this queue through the daemon, from a machine that reaches a broker only. What is a daemon's own in a
//! shared queue is a relay's own here: fetchers and their lists, leased attempts, rejected files, an input directory.
//!
//! Called by the store's operations. [`Session::relay`] says in whose name an operation is carried out. It knows no broker.

use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Result};
use serde_json::json;
use shiftboss_actors::file_identity::DirectoryIdentity;
use shiftboss_actors::store::{
    Dispatched, InputDirectory, JoinRelay, JoinedRelay, Lane, LoseRelay, REJECTED_MAX, Rejected,
    Relay, RelayAnswer, Relayed, RelayedRows, RowsAnswer,
};
use shiftboss_protocol::backoff::random;
use shiftboss_protocol::model::{Attempt, UnixSeconds};

use super::error::rejected;
use super::query::Query;
use super::records::{set_state, state};
use super::session::Session;

/// The number of the first range's lane; those of [`Lane`]s are below.
const LANE_OF_RANGE_0: i64 = 16;

fn number_of(lane: Lane) -> i64 {
    match lane {
        Lane::Jobs => 0,
        Lane::Lists => 1,
    }
}

/// What came of each operation of a relay's batch.
type Answers = Vec<std::result::Result<shiftboss_actors::store::Outcome, Rejected>>;

/// How a relay's batch is to be treated.
pub(super) enum Standing {
    /// It is carried out in the name of this relay.
    New(i64),
    /// It is answered so, without being carried out.
    Answered(RelayAnswer),
}

/// The numbers of a range whose rows were rejected, in order. What is no list of numbers was edited by hand.
fn rejected_numbers(kept: Option<&str>) -> Vec<i64> {
    kept.and_then(|kept| serde_json::from_str(kept).ok()).unwrap_or_default()
}

/// What rows are answered that came before.
fn answer_again(it: &RelayedRows, rejected: Option<&str>) -> RowsAnswer {
    let rejected = rejected_numbers(rejected);
    let is_forgotten =
        rejected.len() == REJECTED_MAX && rejected.first().is_some_and(|first| it.number < *first);
    match rejected.contains(&it.number) {
        true => it.rejected(),
        false if is_forgotten => RowsAnswer::Lost,
        false => RowsAnswer::Stored,
    }
}

/// The rejected numbers with one more, and without the lowest ones if they are too many.
fn with(number: i64, rejected: Option<&str>) -> String {
    let mut rejected = rejected_numbers(rejected);
    rejected.push(number);
    json!(rejected[rejected.len().saturating_sub(REJECTED_MAX)..]).to_string()
}

pub(super) fn are_any(connection: &Connection) -> Result<bool> {
    connection.value("SELECT EXISTS (SELECT 1 FROM shiftboss_relays)", [])
}

impl Session<'_> {
    pub(super) fn join_relay(&mut self, it: &JoinRelay, now: UnixSeconds) -> Result<JoinedRelay> {
        let installation = self.installation()?;
        if it.installation.as_ref().is_some_and(|known| *known != installation) {
            let why =
                "the daemon has another queue by now: this relay's lists and jobs are not its";
            return Err(rejected(why.to_owned()));
        }
        self.queue.has_relays = true;
        // Times begin a new count where the table was lost.
        let join = "INSERT INTO shiftboss_relays (name, process, epoch, joined)
            SELECT ?1, ?2, max(?3 * 1000, coalesce(max(epoch), 0) + 1), ?3 FROM shiftboss_relays WHERE true
            ON CONFLICT (name) DO UPDATE SET process = excluded.process, epoch = excluded.epoch,
                joined = excluded.joined, lost = 0
            RETURNING relay, epoch, input_directory";
        let is_known =
            "SELECT EXISTS (SELECT 1 FROM shiftboss_relays WHERE name = ?1 AND process = ?2)";
        let is_known: bool = self.value(is_known, (&*it.name, &*it.process))?;
        let (relay, epoch, input): (i64, i64, Option<String>) =
            self.row(join, (&*it.name, &*it.process, now))?;
        // Another process counts its batches anew, and each one its rows with each epoch.
        let forget =
            "DELETE FROM shiftboss_relay_lanes WHERE relay = ?1 AND (lane >= ?2 OR NOT ?3)";
        self.run(forget, (relay, LANE_OF_RANGE_0, is_known))?;
        if !is_known {
            // Its files may have changed since the last process read rows that their positions are not behind.
            let ahead = "UPDATE shiftboss_runs SET stale = 1 WHERE stale = 2 AND fetcher_id IN (
                SELECT fetcher_id FROM fetchers JOIN shiftboss_relay_fetchers USING (name) WHERE relay = ?1)";
            self.run(ahead, [relay])?;
        }
        // What an earlier process of it rejected may not be there any more.
        let forget = "DELETE FROM shiftboss_relay_rejected_files WHERE relay = ?1";
        self.run(forget, [relay])?;
        self.forget_ended_leases()?;
        let input_directory = input.as_deref().and_then(DirectoryIdentity::parse);
        Ok(JoinedRelay { epoch, installation, is_paused: self.queue.paused, input_directory })
    }

    /// Made when it is asked for first.
    pub(super) fn installation(&self) -> Result<Arc<str>> {
        if let Some(known) = state(self.connection, "installation")? {
            return Ok(known.into());
        }
        let made = format!("{:016x}", random());
        set_state(self, "installation", &made)?;
        Ok(made.into())
    }

    /// Its leases are the daemon's from now on.
    pub(super) fn lose_relay(&mut self, it: &LoseRelay) -> Result<Option<u64>> {
        let lose = "UPDATE shiftboss_relays SET lost = iif(?2, 2, 1)
            WHERE epoch = ?1 AND lost = 0 RETURNING relay";
        let Some(relay) = self.value::<i64>(lose, (it.epoch, it.is_stopped)).optional()? else {
            return Ok(None);
        };
        self.forget_ended_leases()?;
        let adopted =
            self.change("DELETE FROM shiftboss_relay_leases WHERE relay = ?1", [relay])?;
        Ok(Some(adopted as u64))
    }

    pub(super) fn relays(&self) -> Result<Vec<Relay>> {
        let sql = "SELECT name, process, epoch FROM shiftboss_relays WHERE lost = 0 ORDER BY name";
        let relays: Vec<(String, String, i64)> = self.rows(sql, [])?;
        let relay = |(name, process, epoch): (String, String, i64)| Relay {
            name: name.into(),
            process: process.into(),
            epoch,
            beat: 0,
        };
        Ok(relays.into_iter().map(relay).collect())
    }

    /// The relay that acts under an epoch.
    fn relay_of(&self, epoch: i64) -> Result<Option<i64>> {
        let sql = "SELECT relay FROM shiftboss_relays WHERE epoch = ?1 AND lost = 0";
        self.value(sql, [epoch]).optional()
    }

    /// The last number in a lane, and what it was answered; of a range, which numbers were rejected. 0: there was none.
    fn last_in_lane(&self, relay: i64, lane: i64) -> Result<(i64, Option<String>)> {
        let sql = "SELECT number, answer FROM shiftboss_relay_lanes WHERE relay = ?1 AND lane = ?2";
        Ok(self.row(sql, (relay, lane)).optional()?.unwrap_or_default())
    }

    fn set_last_in_lane(
        &self,
        relay: i64,
        lane: i64,
        number: i64,
        answer: Option<&str>,
    ) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO shiftboss_relay_lanes (relay, lane, number, answer)
            VALUES (?1, ?2, ?3, ?4)";
        self.run(sql, (relay, lane, number, answer))
    }

    /// Whether a relay's batch is to be carried out. One that only reads has no number.
    pub(super) fn standing(&self, it: &Relayed, is_numbered: bool) -> Result<Standing> {
        let Some(relay) = self.relay_of(it.epoch)? else {
            return Ok(Standing::Answered(RelayAnswer::Lost));
        };
        let (last, answer) = self.last_in_lane(relay, number_of(it.lane))?;
        if it.operations.is_empty() && it.number > last {
            // What it was answered is not in this queue: a backup was restored.
            return Ok(Standing::Answered(RelayAnswer::Lost));
        }
        if !is_numbered || it.number > last {
            return Ok(Standing::New(relay));
        }
        let answer = answer.filter(|_| it.number == last);
        // What is no answer was edited by hand.
        let answers = answer.and_then(|answer| serde_json::from_str(&answer).ok());
        Ok(Standing::Answered(answers.map_or(RelayAnswer::Outdated, RelayAnswer::Answered)))
    }

    /// A batch was carried out, and is answered so from now on.
    pub(super) fn keep_answer(&self, relay: i64, it: &Relayed, answers: &Answers) -> Result<()> {
        // No answer has a map with keys that are no texts, which is all that can fail.
        let answers = serde_json::to_string(answers).unwrap_or_default();
        self.set_last_in_lane(relay, number_of(it.lane), it.number, Some(&answers))
    }

    pub(super) fn add_relayed_rows(&mut self, it: &RelayedRows) -> Result<RowsAnswer> {
        let Some(relay) = self.relay_of(it.epoch)? else {
            return Ok(RowsAnswer::Lost);
        };
        let lane = LANE_OF_RANGE_0 + i64::from(it.range);
        let (last, rejected) = self.last_in_lane(relay, lane)?;
        if it.number <= last {
            return Ok(answer_again(it, rejected.as_deref()));
        }
        if it.number > last + 1 {
            return Ok(RowsAnswer::Gap);
        }
        self.relay = Some(relay);
        let added = self.add_further_rows(&it.run, &it.rows);
        self.relay = None;
        let is_stored = added?;
        let rejected =
            if is_stored { rejected } else { Some(with(it.number, rejected.as_deref())) };
        self.set_last_in_lane(relay, lane, it.number, rejected.as_deref())?;
        Ok(if is_stored { RowsAnswer::Stored } else { it.rejected() })
    }

    /// A job that was handed out with a lease is the relay's to see to, if one asked for it.
    pub(super) fn note_lease(&self, dispatched: &Dispatched, is_leased: bool) -> Result<()> {
        match dispatched {
            Dispatched::Job(attempt, _) if is_leased && self.relay.is_some() => {
                self.take_lease(*attempt)
            }
            _ => Ok(()),
        }
    }

    /// A leased attempt is seen to by whoever asks, from now on.
    pub(super) fn take_lease(&self, attempt: Attempt) -> Result<()> {
        match self.relay {
            Some(relay) => {
                let sql = "INSERT OR REPLACE INTO shiftboss_relay_leases (attempt, relay) VALUES (?1, ?2)";
                self.run(sql, (attempt.0, relay))
            }
            None => self.run("DELETE FROM shiftboss_relay_leases WHERE attempt = ?1", [attempt.0]),
        }
    }

    /// Who sees to a leased attempt; `None`: the daemon.
    pub(super) fn lease_of(&self, attempt: Attempt) -> Result<Option<i64>> {
        if !self.queue.has_relays {
            return Ok(None);
        }
        let sql = "SELECT relay FROM shiftboss_relay_leases WHERE attempt = ?1";
        self.value(sql, [attempt.0]).optional()
    }

    fn forget_ended_leases(&self) -> Result<()> {
        let sql = "DELETE FROM shiftboss_relay_leases WHERE NOT EXISTS (
            SELECT 1 FROM shiftboss_deliveries AS held
            WHERE held.attempt = shiftboss_relay_leases.attempt AND held.lease IS NOT NULL)";
        self.run(sql, [])
    }

    /// Takes a fetcher that is nobody's, or is the asker's own. Else it says whose it is, for people.
    pub(super) fn take_fetcher(&self, fetcher: &str) -> Result<Option<String>> {
        if !self.queue.has_relays {
            return Ok(None);
        }
        let (owner, name) = self.fetcher_owner(fetcher)?;
        if owner == self.relay {
            return Ok(None);
        }
        if !self.has_runs(fetcher)? {
            self.set_owner(fetcher)?;
            return Ok(None);
        }
        let whose =
            name.map_or_else(|| "the daemon".to_owned(), |name| format!("the relay {name}"));
        Ok(Some(format!(
            "the fetcher {fetcher} is {whose}'s: remove its lists there, or give this one another name"
        )))
    }

    /// Whose a fetcher is, with the relay's name; neither: the daemon's, or nobody's.
    fn fetcher_owner(&self, fetcher: &str) -> Result<(Option<i64>, Option<String>)> {
        let sql = "SELECT relay, shiftboss_relays.name
            FROM shiftboss_relay_fetchers JOIN shiftboss_relays USING (relay)
            WHERE shiftboss_relay_fetchers.name = ?1";
        let owner: Option<(i64, String)> = self.row(sql, [fetcher]).optional()?;
        Ok(owner.unzip())
    }

    fn has_runs(&self, fetcher: &str) -> Result<bool> {
        let sql = "SELECT EXISTS (
            SELECT 1 FROM fetchers JOIN fetcher_runs USING (fetcher_id) WHERE name = ?1)";
        self.value(sql, [fetcher])
    }

    fn set_owner(&self, fetcher: &str) -> Result<()> {
        match self.relay {
            Some(relay) => {
                let sql =
                    "INSERT OR REPLACE INTO shiftboss_relay_fetchers (name, relay) VALUES (?1, ?2)";
                self.run(sql, (fetcher, relay))
            }
            None => self.run("DELETE FROM shiftboss_relay_fetchers WHERE name = ?1", [fetcher]),
        }
    }

    /// Whether a fetcher's lists are the asker's own.
    pub(super) fn is_own(&self, fetcher: &str) -> Result<bool> {
        Ok(!self.queue.has_relays || self.fetcher_owner(fetcher)?.0 == self.relay)
    }

    pub(super) fn set_relay_input(
        &self,
        relay: i64,
        input: &InputDirectory,
        now: UnixSeconds,
    ) -> Result<()> {
        match input {
            InputDirectory::There(identity) => {
                let sql = "UPDATE shiftboss_relays
                    SET input_directory = ?2, lost_since = NULL, lost_reason = NULL WHERE relay = ?1";
                self.run(sql, (relay, identity.to_string()))
            }
            InputDirectory::Lost(reason) => {
                let sql = "UPDATE shiftboss_relays
                    SET lost_since = coalesce(lost_since, ?3), lost_reason = ?2 WHERE relay = ?1";
                self.run(sql, (relay, reason, now))
            }
        }
    }
}
