//! Forgets a daemon that is gone for good, or a relay: living daemons adopt its jobs, or these wait again, and its
//! lists leave the queue. Called by `shiftboss forget --daemon`, beside the daemons, and without contacting them.

use std::time::Duration;

use shiftboss_postgres::PostgresRecords;
use shiftboss_queue::context::Settings;
use shiftboss_queue::documents::{Gone, RELAY};
use shiftboss_queue::engine::{Engine, Own};
use shiftboss_queue::error::{StoreError, StoreResult};
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::companion::CHANNEL;
use super::connection::{Server, limited};
use super::daemons;
use super::peers::{Asked, Peer, wait_out};
use super::pooler;
use super::schema;
use crate::stores::forget::{Left, forget_member};

/// If others do not adopt its jobs within this time, these wait again.
const ADOPTED_WITHIN: Duration = Duration::from_secs(10);
const ADOPTION_LOOK_EVERY: Duration = Duration::from_millis(100);

/// `None`: the queue has no daemon of that name, and no relay.
pub(crate) async fn forget(server: &Server, name: &str) -> StoreResult<Option<Left>> {
    let client = pooler::refuse(server).await?;
    schema::require_current(&client).await?;
    let lives = |who: &str| format!("the daemon {name} lives ({who}): stop it first");
    let daemon = wait_dead(&client, name).await?;
    let daemon = daemon.map_err(|holder| StoreError::Rejected(lives(&holder)))?;
    // Of no daemon.
    let own = Own { name: "".into(), takeover: 0 };
    let engine = Engine::new(PostgresRecords::new(client, 0), Settings::default());
    let mut engine = engine.acting_for(own);
    let Some(daemon) = daemon else {
        let lives = || lives("it is a relay, and a daemon hears it");
        return forget_member(&mut engine, 0, &RELAY.of(name).into(), lives).await;
    };
    let jobs = give_back(&mut engine, &daemon).await?;
    let lives = || lives("it was started again");
    let left = forget_member(&mut engine, 0, &daemon.member, lives).await;
    let client = engine.store().client();
    // Jobs that wait again are work for living daemons.
    limited(client.batch_execute(&format!("NOTIFY {CHANNEL}"))).await?;
    let left = left?.unwrap_or_default();
    daemons::forget(client, &daemon).await?;
    Ok(Some(Left { jobs, ..left }))
}

/// The daemon of a name, which was stopped or is taken for dead now, and can no longer write; `None`: there is no such
/// daemon. Fails, with its identity, if it lives.
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

/// Requeues its jobs that no daemon adopts; returns how many.
async fn give_back(engine: &mut Engine<PostgresRecords>, daemon: &Peer) -> StoreResult<u64> {
    let began = Instant::now();
    while began.elapsed() < ADOPTED_WITHIN
        && daemons::is_to_be_adopted(engine.store().client(), daemon).await?
    {
        sleep(ADOPTION_LOOK_EVERY).await;
    }
    engine.store_mut().require(Some((daemon.daemon, daemon.epoch)));
    let gone = daemon.gone.unwrap_or(Gone::Silent);
    engine.give_back(0, &daemon.member, gone, daemon.seen).await
}
