//! Forgets a daemon that is gone for good, or a relay: its jobs are adopted by those that live, or wait again, and its lists leave the queue.
//! Called by `shiftboss forget --daemon`, beside the daemons; knows none of them.
//!
//! What is to be done the queue's engine knows; here it is asked in bounded steps. What was begun and failed is ended by the next try.

use std::sync::Arc;
use std::time::Duration;

use shiftboss_postgres::PostgresRecords;
use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::{Gone, RELAY};
use shiftboss_queue::engine::{Engine, Forgetting, Own};
use shiftboss_queue::error::StoreResult;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::companion::CHANNEL;
use super::connection::{Server, limited};
use super::daemons;
use super::peers::Peer;
use super::pooler;
use super::schema;
use super::standstill::{Asked, wait_out};
use crate::stores::Left;

/// Others adopt its jobs within this time, or those wait again.
const ADOPTED_WITHIN: Duration = Duration::from_secs(10);
const ADOPTION_LOOK_EVERY: Duration = Duration::from_millis(100);

/// What came of it.
pub(crate) enum Forgotten {
    Gone(Left),
    /// The queue has no daemon of that name, and no relay.
    Unknown,
    /// It lives: who it is.
    Lives(String),
}

pub(crate) async fn forget(server: &Server, name: &str) -> StoreResult<Forgotten> {
    let connection = pooler::refuse(server).await?;
    schema::require_current(&connection.client).await?;
    let daemon = match wait_dead(&connection.client, name).await? {
        Ok(daemon) => daemon,
        Err(holder) => return Ok(Forgotten::Lives(holder)),
    };
    let (client, _open) = connection.into_parts();
    // Of no daemon.
    let own = Own { name: "".into(), takeover: 0 };
    let engine = Engine::new(PostgresRecords::new(client, 0), Settings::default());
    let mut engine = engine.acting_for(own);
    let Some(daemon) = daemon else {
        return forget_member(&mut engine, &RELAY.of(name).into(), 0).await;
    };
    let jobs = give_back(&mut engine, &daemon).await?;
    let came_to = forget_member(&mut engine, &daemon.member, jobs).await?;
    let client = engine.store().client();
    if !matches!(came_to, Forgotten::Lives(_)) {
        daemons::forget(client, &daemon).await?;
    }
    // What waits again is work for those that live.
    limited(client.batch_execute(&format!("NOTIFY {CHANNEL}"))).await?;
    Ok(match came_to {
        Forgotten::Unknown => Forgotten::Gone(Left { jobs, ..Left::default() }),
        came_to => came_to,
    })
}

/// The daemon of a name, which was stopped or is taken for dead now, and writes nothing from then on; `None`: nobody is called so. Else it
/// lives: who it is.
pub(super) async fn wait_dead(
    client: &Client,
    name: &str,
) -> StoreResult<Result<Option<Peer>, String>> {
    wait_out(async |known| {
        let Some((peer, holder)) = daemons::find(client, name).await? else {
            return Ok(Asked::Had(None));
        };
        let (beat, is_still) = (peer.beat, peer.gone.is_some() || known == Some(peer.beat));
        let retired = if is_still { daemons::retire(client, peer).await? } else { None };
        Ok(retired.map_or(Asked::Taken(holder, beat), |peer| Asked::Had(Some(peer))))
    })
    .await
}

/// Its jobs wait again that nobody adopts; so many.
async fn give_back(engine: &mut Engine<PostgresRecords>, daemon: &Peer) -> StoreResult<i64> {
    let began = Instant::now();
    while began.elapsed() < ADOPTED_WITHIN
        && daemons::is_to_be_adopted(engine.store().client(), daemon).await?
    {
        sleep(ADOPTION_LOOK_EVERY).await;
    }
    engine.store_mut().require(Some((daemon.daemon, daemon.epoch)));
    let gone = daemon.gone.unwrap_or(Gone::Silent);
    let jobs = engine.give_back(0, &daemon.member, gone, daemon.seen).await?;
    Ok(i64::try_from(jobs).unwrap_or(i64::MAX))
}

async fn forget_member(
    engine: &mut Engine<PostgresRecords>,
    member: &Arc<str>,
    jobs: i64,
) -> StoreResult<Forgotten> {
    loop {
        return Ok(match engine.forget_member(0, member).await? {
            Forgetting::More => continue,
            Forgetting::Unknown => Forgotten::Unknown,
            Forgetting::Gone { lists, fetchers } => {
                let count = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
                Forgotten::Gone(Left { lists: count(lists), fetchers: count(fetchers), jobs })
            }
            Forgetting::Lives => Forgotten::Lives(match member.starts_with(RELAY.name()) {
                true => "it is a relay, and a daemon hears it".to_owned(),
                false => "it was started again".to_owned(),
            }),
        });
    }
}
