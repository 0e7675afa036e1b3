//! A queue that comes from a server, whose tables are others still, becomes one of ours: records are made of all that has the same
//! key, and written as any new one is.
//!
//! Called by `move`, which copied what comes to temporary tables before, `moved_*`: their columns are in the program's
//! `stores/transfer.rs`. Keys come in the order of jitter; so memory is bounded.

mod records;

use std::collections::BTreeMap;
use std::sync::Arc;

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Result, Row, Transaction};
use shiftboss_protocol::fetcher_file::checksum;
use shiftboss_protocol::model::{TASKS_FETCHER, jitter};
use shiftboss_queue::documents::{self, Daemon, Gone, Input, Member, PLACES};
use shiftboss_queue::file_identity::{FileTimes, Position};
use shiftboss_queue::operation::EntryId;
use shiftboss_queue::record::{FetcherId, Millis};
use shiftboss_queue::records::{RunState, Stale, StoreResult};

use crate::ask::Ask;
use crate::code;
use crate::documents::write;
use crate::error::classify;
use crate::header::{self, Kept};
use crate::save::Saver;
use records::Writer;

const INDEXES: &str = include_str!("arrive/indexes.sql");
const REST: &str = include_str!("arrive/rest.sql");

/// Makes a queue of what was copied to `moved_*`, in the transaction in which that was; the other tables are empty.
///
/// # Errors
/// What SQLite says; nothing is to be committed then.
pub fn arrive(transaction: &Transaction<'_>, now: Millis) -> StoreResult<()> {
    arrive_in(transaction, now).map_err(classify)
}

fn arrive_in(connection: &Connection, now: Millis) -> Result<()> {
    add_functions(connection)?;
    connection.execute_batch(INDEXES)?;
    let mut kept = Kept::default();
    load_header(connection, &mut kept)?;
    let daemon = write_documents(connection)?;
    let context = kept.header.context(&Arc::new(daemon.settings()), now);
    let names = kept.header.fetchers.iter().map(|(id, name)| (name.clone(), *id));
    let names = names.chain([(TASKS_FETCHER.into(), FetcherId::TASKS)]).collect();
    let Kept { header, ids, ends } = &mut kept;
    let saver = Saver::new(connection, ids, ends);
    Writer { connection, saver, context, names, counts: &mut header.counts }.run()?;
    header::save_all(connection, &kept)?;
    connection.execute_batch(REST)
}

fn add_functions(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_scalar_function("shiftboss_jitter", 1, flags, |context| {
        Ok(context.get_raw(0).as_str().map_or(0, jitter))
    })?;
    connection.create_scalar_function("shiftboss_checksum", 1, flags, |context| {
        Ok(checksum(context.get_raw(0).as_bytes()?).cast_signed())
    })
}

/// Numbers, fetchers and runs. A fetcher that has no run, but was once served or counted, has its name still.
fn load_header(connection: &Connection, kept: &mut Kept) -> Result<()> {
    let header = &mut kept.header;
    let sql = "SELECT paused, last_task, last_attempt, credit FROM moved_state";
    let state = connection.first::<(bool, i64, i64, i64)>(sql, [], |row| row.try_into())?;
    if let Some(state) = state {
        (header.paused, header.last_single, header.last_attempt, header.credit) = state;
    }
    header.last_bump = connection.value("SELECT coalesce(max(rowid), 0) FROM moved_bumps", [])?;
    let fetchers: Vec<(i64, String)> =
        connection.rows("SELECT fetcher, name FROM moved_fetchers", [], |row| row.try_into())?;
    let known = fetchers.into_iter().map(|(id, name)| (FetcherId(id), name.into()));
    header.fetchers = Arc::new(known.collect());
    let others =
        "SELECT name FROM moved_last_served UNION SELECT fetcher FROM moved_hours UNION SELECT ''
        EXCEPT SELECT name FROM moved_fetchers EXCEPT SELECT ?1";
    for name in connection.values::<String>(others, [TASKS_FETCHER])? {
        let last = header.fetchers.keys().last().map_or(0, |id| id.0);
        header.name_fetcher(FetcherId(last.saturating_add(1)), name.into());
    }
    let runs = connection.rows("SELECT * FROM moved_runs", [], run)?;
    header.runs = runs.into_iter().collect();
    Ok(())
}

fn run(row: &Row<'_>) -> Result<((FetcherId, i64), RunState)> {
    let number = |at: usize| row.get::<_, Option<i64>>(at).map(|it| it.map(i64::cast_unsigned));
    let position = match number(6)? {
        None => None,
        Some(offset) => Some(Position {
            offset,
            lines: number(7)?.unwrap_or(0),
            device: number(8)?.unwrap_or(0),
            inode: number(9)?.unwrap_or(0),
            checksum: number(10)?.unwrap_or(0),
            content: number(11)?,
            verified: row
                .get::<_, Option<i64>>(12)?
                .zip(row.get(13)?)
                .map(|(modified, changed)| FileTimes { modified, changed }),
        }),
    };
    let state = RunState {
        complete: row.get(2)?,
        deleting: row.get(3)?,
        position: position.as_ref().map(code::json).transpose()?,
        skipped: number(5)?.unwrap_or(0),
        stale: if row.get(4)? { Stale::Yes } else { Stale::No },
        ..RunState::default()
    };
    Ok(((FetcherId(row.get(0)?), row.get(1)?), state))
}

/// What the daemon and its relays noted.
fn write_documents(connection: &Connection) -> Result<Daemon> {
    let sql = "SELECT lease, max_tasks, input_directory, installation, bump_share FROM moved_state";
    let state = connection.first(sql, [], |row| {
        let daemon = Daemon {
            durability: "power".to_owned(),
            lease_seconds: row.get::<_, Option<i64>>(0)?.unwrap_or(0),
            max_single_tasks: row.get::<_, Option<i64>>(1)?.unwrap_or(0),
            bump_share: row.get::<_, Option<u32>>(4)?.unwrap_or(0),
            ..Daemon::default()
        };
        Ok((daemon, row.get::<_, Option<String>>(2)?, row.get::<_, Option<String>>(3)?))
    })?;
    let note = |name: &str, text: String| write(connection, name, Some(&text));
    let (daemon, input, installation) = state.unwrap_or_default();
    note(documents::DAEMON.name(), documents::DAEMON.text(&daemon))?;
    note(PLACES.name(), PLACES.text(&daemon.policy))?;
    if input.is_some() {
        let input = Input { identity: input, lost: None };
        note(documents::INPUT.name(), documents::INPUT.text(&input))?;
    }
    if let Some(it) = installation {
        note(documents::INSTALLATION.name(), documents::INSTALLATION.text(&it))?;
    }
    let mut relays = BTreeMap::<String, Vec<Arc<str>>>::new();
    let sql = "SELECT DISTINCT relay, name FROM moved_runs JOIN moved_fetchers USING (fetcher)
        WHERE relay IS NOT NULL ORDER BY 1, 2";
    for (relay, name) in connection.rows::<(String, String)>(sql, [], |row| row.try_into())? {
        relays.entry(relay).or_default().push(name.into());
    }
    for ((name, fetchers), epoch) in relays.into_iter().zip(1..) {
        let gone = Some(Gone::Stopped);
        let relay = Member { epoch, gone, fetchers, ..Member::default() };
        note(&documents::RELAY.of(&name), documents::RELAY.text(&relay))?;
    }
    for entry in connection.rows("SELECT * FROM moved_accepted", [], entry)? {
        let name = documents::ACCEPTED.of(&documents::accepted(&entry));
        note(&name, documents::ACCEPTED.text(&entry))?;
    }
    Ok(daemon)
}

fn entry(row: &Row<'_>) -> Result<EntryId> {
    Ok(EntryId {
        spool: row.get::<_, String>(0)?.into(),
        name: row.get::<_, String>(1)?.into(),
        inode: row.get::<_, i64>(2)?.cast_unsigned(),
        born: row.get(3)?,
        checksum: row.get::<_, i64>(4)?.cast_unsigned(),
    })
}
