//! What relays ask of a queue on a server: each request is a call of its own, and so a transaction of its own, in the relay's name.
//!
//! Part of the [store](super): it does these before the daemon's own operations of a batch. A batch of a relay is
//! carried out once for each number, so one that was committed before another call failed is answered again when it is asked
//! again. What a relay is to the server stands in `schema/0002_relays.sql`.

use std::sync::Arc;

use shiftboss_actors::file_identity::DirectoryIdentity;
use shiftboss_actors::store::{
    JoinRelay, JoinedRelay, Lane, Operation, Outcome, Rejected, Relay, RelayAnswer, Relayed,
    RelayedRows, RowsAnswer, StoreError, StoreResult,
};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, Statement, ToStatement};

use super::{Outcomes, PostgresStore};
use crate::stores::postgres::answers::Answer;
use crate::stores::postgres::batch::Batch;
use crate::stores::postgres::connection::{CALL_MAX, limited, unanswered};
use crate::stores::postgres::error::{FENCED, classify, fenced, misunderstood};
use shiftboss_actors::clock::boot_time;

pub(super) const APPLY: &str =
    "SELECT ord, answer, attempt, key, payload, number, detail FROM apply_relayed($1, $2, $3, $4,
    $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22)";

/// What the functions are told of the daemon that speaks for a relay.
struct Speaker<'a> {
    apply: &'a Statement,
    daemon: i32,
    epoch: i64,
    lease: i64,
    max_expired: i32,
    max_tasks: i64,
    takeover: i64,
    /// The second of its last call, and how far classic leases had been gone through then.
    seen: i64,
    expired_to: i64,
    /// What the call says of itself.
    call: Option<Answer>,
}

/// Whether an operation is about relays.
fn is_of_relays(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::JoinRelay(_)
            | Operation::Relayed(_)
            | Operation::AddRelayedRows(_)
            | Operation::LoseRelay(_)
            | Operation::Relays(_)
            | Operation::Installation(_)
            | Operation::Place(_)
    )
}

impl PostgresStore {
    /// What relays asked is carried out first, each request for itself: those that were are answered again if the rest fails,
    /// and is asked again.
    pub(super) async fn apply_with_relays(
        &mut self,
        operations: Vec<Operation>,
    ) -> StoreResult<Outcomes> {
        if !operations.iter().any(is_of_relays) {
            return self.apply_now(&operations).await;
        }
        let mut relayed = Vec::new();
        for operation in operations.iter().filter(|operation| is_of_relays(operation)) {
            relayed.push(self.relay(operation).await?);
        }
        let own: Vec<Operation> =
            operations.iter().filter(|operation| !is_of_relays(operation)).cloned().collect();
        let own = if own.is_empty() { Vec::new() } else { self.apply_now(&own).await? };
        let (mut relayed, mut own) = (relayed.into_iter(), own.into_iter());
        let outcomes = operations
            .iter()
            .map(|operation| if is_of_relays(operation) { relayed.next() } else { own.next() });
        outcomes.collect::<Option<_>>().ok_or_else(|| misunderstood("it did not answer all"))
    }

    /// What a call says of all operations.
    pub(super) fn note_call(&mut self, answer: &Answer) {
        (self.seen, self.expired_to) =
            (answer.number.unwrap_or_default(), answer.attempt.unwrap_or_default());
        self.membership.note_pause(answer.is("true"));
        self.membership.note_classic(answer.flag());
        self.ends.extend(answer.ends());
    }

    async fn relay(&mut self, operation: &Operation) -> StoreResult<Result<Outcome, Rejected>> {
        self.membership.failure()?;
        let joined = self.joined().await?;
        let mut speaker = Speaker {
            apply: &joined.apply_relayed,
            daemon: joined.daemon,
            epoch: joined.epoch,
            lease: self.options.policy.lease(),
            max_expired: i32::try_from(self.options.max_expired_leases).unwrap_or(i32::MAX),
            max_tasks: i64::from(self.options.max_single_tasks),
            takeover: i64::try_from(self.identity.takeover.as_secs()).unwrap_or(i64::MAX),
            seen: self.seen,
            expired_to: self.expired_to,
            call: None,
        };
        let asked = boot_time();
        let outcome = speaker.carry_out(&joined.connection.client, operation).await;
        let is_late = boot_time().saturating_sub(asked) >= CALL_MAX;
        if let Some(call) = speaker.call.take() {
            self.note_call(&call);
        }
        // Of an answer that did not come in time it is not known whether anything was done: the relay asks again. Whoever asks
        // over that connection would wait behind it.
        if !is_late && !joined.connection.client.is_closed() {
            self.joined = Some(joined);
        }
        if outcome.is_ok() && operation.may_bring_work() {
            self.membership.tell_work();
        }
        outcome
    }
}

impl Speaker<'_> {
    /// Carries one such operation out.
    async fn carry_out(
        &mut self,
        client: &Client,
        operation: &Operation,
    ) -> StoreResult<Result<Outcome, Rejected>> {
        Ok(Ok(match operation {
            Operation::JoinRelay(it) => match self.join(client, it).await? {
                Ok(joined) => Outcome::JoinRelay(joined),
                Err(rejected) => return Ok(Err(rejected)),
            },
            Operation::Relayed(it) => Outcome::Relayed(self.perform(client, it).await?),
            Operation::AddRelayedRows(it) => {
                Outcome::AddRelayedRows(self.add_rows(client, &it.0).await?)
            }
            Operation::LoseRelay(it) => {
                let lose = match it.is_stopped {
                    true => "SELECT stop_relay($1, $2, $3)",
                    false => "SELECT lose_relay($1, $2, $3)",
                };
                let values: [&(dyn ToSql + Sync); 3] = [&self.daemon, &self.epoch, &it.epoch];
                let lost = match limited(client.query_opt(lose, &values)).await {
                    Err(StoreError::Rejected(text)) if text == FENCED => return Err(fenced()),
                    lost => lost?,
                };
                let jobs: Option<i64> = lost.and_then(|row| row.get(0));
                Outcome::LoseRelay(jobs.map(i64::cast_unsigned))
            }
            Operation::Installation(_) => {
                let row = limited(client.query_one("SELECT installation()", &[])).await?;
                Outcome::Installation(row.get::<_, &str>(0).into())
            }
            Operation::Place(_) => Outcome::Place(Some(place(client).await?)),
            _ => Outcome::Relays(known(client).await?),
        }))
    }

    async fn join(
        &self,
        client: &Client,
        it: &JoinRelay,
    ) -> StoreResult<Result<JoinedRelay, Rejected>> {
        let join = "SELECT epoch, installation, paused, input_directory, refused
            FROM join_relay($1, $2, $3, $4, $5, $6, $7)";
        let (name, process, installation) = (&*it.name, &*it.process, it.installation.as_deref());
        let version = env!("CARGO_PKG_VERSION");
        let asked: [&(dyn ToSql + Sync); 7] = [
            &name,
            &process,
            &installation,
            &version,
            &self.lease,
            &self.max_tasks,
            &self.takeover,
        ];
        let row = limited(client.query_one(join, &asked)).await?;
        if let Some(refused) = row.get(4) {
            return Ok(Err(Rejected(refused)));
        }
        let input: Option<&str> = row.get(3);
        Ok(Ok(JoinedRelay {
            epoch: row.get(0),
            installation: row.get::<_, &str>(1).into(),
            is_paused: row.get(2),
            input_directory: input.and_then(DirectoryIdentity::parse),
        }))
    }

    async fn perform(&mut self, client: &Client, it: &Relayed) -> StoreResult<RelayAnswer> {
        // One within another is nobody's.
        if it.operations.iter().any(is_of_relays) {
            return Ok(RelayAnswer::Lost);
        }
        let is_numbered = !it.operations.iter().all(Operation::only_reads);
        let number = match (is_numbered, it.operations.is_empty()) {
            (true, _) => it.number,
            (false, true) => -it.number,
            (false, false) => 0,
        };
        let (lane, batch) = (number_of(it.lane), Batch::of(&it.operations));
        let mut values: Vec<&(dyn ToSql + Sync)> = vec![
            &it.epoch,
            &lane,
            &number,
            &self.seen,
            &self.expired_to,
            &self.lease,
            &self.max_expired,
            &self.max_tasks,
        ];
        values.extend(batch.columns());
        let rows = ask(client, self.apply, &values).await?;
        let read = |row| Answer::read(row).map_err(|error| misunderstood(&error.to_string()));
        // A batch that was carried out before is answered without it.
        let call = rows.iter().find(|row| row.get::<_, i32>(0) == 0);
        self.call = call.map(read).transpose()?;
        answered(&it.operations, &rows)
    }

    async fn add_rows(
        &self,
        client: &Client,
        parts: &[RelayedRows],
    ) -> StoreResult<Vec<RowsAnswer>> {
        let add = "SELECT * FROM add_relayed_rows($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
        let epochs: Vec<i64> = parts.iter().map(|part| part.epoch).collect();
        let ranges: Vec<i32> = parts.iter().map(|part| part.range.into()).collect();
        let numbers: Vec<i64> = parts.iter().map(|part| part.number).collect();
        let fetchers: Vec<&str> = parts.iter().map(|part| &*part.run.fetcher).collect();
        let started: Vec<i64> = parts.iter().map(|part| part.run.started).collect();
        let rows = || parts.iter().flat_map(|part| &part.rows);
        let ends = parts.iter().scan(0, |end, part| {
            *end += i32::try_from(part.rows.len()).unwrap_or(i32::MAX);
            Some(*end)
        });
        let ends: Vec<i32> = ends.collect();
        let keys: Vec<&[u8]> = rows().map(|row| row.key.as_str().as_bytes()).collect();
        let jitters: Vec<i32> = rows().map(|row| row.key.jitter()).collect();
        let payloads: Vec<&[u8]> = rows().map(|row| row.payload.as_bytes()).collect();
        let values: [&(dyn ToSql + Sync); 10] = [
            &self.lease,
            &epochs,
            &ranges,
            &numbers,
            &fetchers,
            &started,
            &ends,
            &keys,
            &jitters,
            &payloads,
        ];
        let answered = ask(client, add, &values).await?;
        let answers = answered.iter().zip(parts).map(|(row, part)| match row.get(0) {
            "stored" => Ok(RowsAnswer::Stored),
            "gap" => Ok(RowsAnswer::Gap),
            "lost" => Ok(RowsAnswer::Lost),
            "rejected" => Ok(part.rejected()),
            other => Err(misunderstood(other)),
        });
        answers.collect()
    }
}

fn number_of(lane: Lane) -> i32 {
    match lane {
        Lane::Jobs => 0,
        Lane::Lists => 1,
    }
}

/// Two transactions that waited for each other: the server ended this one, which is asked again.
async fn ask(
    client: &Client,
    sql: &(impl ToStatement + ?Sized),
    values: &[&(dyn ToSql + Sync)],
) -> StoreResult<Vec<Row>> {
    let asked = async {
        loop {
            match client.query(sql, values).await {
                Err(error)
                    if error.code()
                        == Some(&tokio_postgres::error::SqlState::T_R_DEADLOCK_DETECTED) => {}
                answered => return answered,
            }
        }
    };
    match tokio::time::timeout(CALL_MAX, asked).await {
        Ok(answered) => answered.map_err(classify),
        Err(_) => Err(unanswered()),
    }
}

fn answered(operations: &[Operation], rows: &[Row]) -> StoreResult<RelayAnswer> {
    let unread = |error: &dyn std::fmt::Display| misunderstood(&error.to_string());
    let mut outcomes: Vec<Option<Result<Outcome, Rejected>>> = vec![None; operations.len()];
    for row in rows {
        match (row.get::<_, i32>(0), row.get::<_, Option<&str>>(1)) {
            (-1, Some("lost")) => return Ok(RelayAnswer::Lost),
            (-1, _) => return Ok(RelayAnswer::Outdated),
            // Of the call as a whole.
            (0, _) => {}
            _ => {
                let answer = Answer::read(row).map_err(|error| unread(&error))?;
                let at = answer.ord - 1;
                // The number was another batch's.
                let Some(operation) = operations.get(at) else { return Ok(RelayAnswer::Outdated) };
                outcomes[at] = Some(answer.outcome(operation).map_err(|error| unread(&error))?);
            }
        }
    }
    let outcomes: Option<Vec<_>> = outcomes.into_iter().collect();
    Ok(outcomes.map_or(RelayAnswer::Outdated, RelayAnswer::Answered))
}

/// Which database of which server this is. A dump that is restored is another one; a replica, and a server that was one, is not.
async fn place(client: &Client) -> StoreResult<Arc<str>> {
    let tells_server = "SELECT has_function_privilege('pg_control_system()', 'EXECUTE')";
    let tells_server: bool = limited(client.query_one(tells_server, &[])).await?.get(0);
    // Without that right databases of two servers may seem one.
    let (server, from) = match tells_server {
        true => ("system_identifier", "pg_control_system(), "),
        false => ("0", ""),
    };
    let place = format!(
        "SELECT {server} || '/' || oid FROM {from}pg_database WHERE datname = current_database()"
    );
    let row = limited(client.query_one(&place, &[])).await?;
    Ok(row.get::<_, &str>(0).into())
}

async fn known(client: &Client) -> StoreResult<Vec<Relay>> {
    let sql = "SELECT substr(name, 7), process, epoch, beat FROM daemons
        WHERE process IS NOT NULL AND NOT lost AND pid IS NOT NULL ORDER BY name COLLATE \"C\"";
    let rows = limited(client.query(sql, &[])).await?;
    let relay = |row: &Row| Relay {
        name: Arc::from(row.get::<_, &str>(0)),
        process: Arc::from(row.get::<_, &str>(1)),
        epoch: row.get(2),
        beat: row.get(3),
    };
    Ok(rows.iter().map(relay).collect())
}
