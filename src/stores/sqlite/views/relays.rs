//! The relays that have joined a queue, for `shiftboss status`. When each was heard of last, only the daemon knows.

use rusqlite::{Connection, Result};
use shiftboss_actors::store::answers::RelayStatus;

use crate::stores::sqlite::query::{Query, columns};

columns!(RelayStatus {
    name, joined_since, gone, silent, directory_lost_since, directory_lost_reason, rejected_files, in_flight;
    fetchers: Vec::new()
});

/// With their leased jobs; lost: 1 were taken for dead, 2 were stopped. Attempts that have ended may still be theirs.
pub(super) const RELAYS: &str = "WITH held AS (
        SELECT relay, count(*) AS jobs FROM shiftboss_relay_leases
        JOIN shiftboss_deliveries USING (attempt) WHERE lease IS NOT NULL GROUP BY relay)
    SELECT name, joined, lost <> 0, lost = 1, lost_since, lost_reason,
        (SELECT count(*) FROM shiftboss_relay_rejected_files AS rejected
            WHERE rejected.relay = known.relay),
        coalesce(jobs, 0)
    FROM shiftboss_relays AS known LEFT JOIN held USING (relay) ORDER BY name";
/// Relays with the fetchers whose lists they have.
pub(super) const LISTS: &str = "SELECT known.name, owned.name
    FROM shiftboss_relay_fetchers AS owned JOIN shiftboss_relays AS known USING (relay)
    JOIN fetchers ON fetchers.name = owned.name
    WHERE EXISTS (SELECT 1 FROM fetcher_runs WHERE fetcher_runs.fetcher_id = fetchers.fetcher_id)
    ORDER BY owned.name";

pub(super) fn relays(snapshot: &Connection) -> Result<Vec<RelayStatus>> {
    let mut relays: Vec<RelayStatus> = snapshot.rows(RELAYS, [])?;
    let lists: Vec<(String, String)> = snapshot.rows(LISTS, [])?;
    for relay in &mut relays {
        let own = lists.iter().filter(|(name, _)| *name == relay.name);
        relay.fetchers = own.map(|(_, fetcher)| fetcher.clone()).collect();
    }
    Ok(relays)
}
