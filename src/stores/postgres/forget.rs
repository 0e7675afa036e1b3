//! Forgets a daemon that is gone for good, or a relay, in bounded steps: its lists leave the queue, its leased jobs are adopted by those that
//! live, or wait again. Called by `shiftboss forget-daemon`, beside the daemons; knows none of them.
//!
//! What was begun and failed is ended by the next try.

use std::time::Duration;

use shiftboss_actors::store::StoreResult;
use tokio::time::{Instant, sleep};
use tokio_postgres::Client;

use super::companion::ROWS_STEP;
use super::connection::{Server, limited};
use super::notices::CHANNEL;
use super::pooler;
use super::schema;
use super::standstill::{Asked, wait_out};
use crate::stores::Left;

/// Others adopt its leased jobs within this time, or those wait again.
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
    let client = &connection.client;
    schema::require_current(client).await?;
    let daemon = match retire(client, name).await? {
        // Relays are daemons of such names.
        Err(Forgotten::Unknown) => match retire(client, &format!("relay {name}")).await? {
            Err(Forgotten::Lives(_)) => {
                return Ok(Forgotten::Lives("it is a relay, and a daemon hears it".to_owned()));
            }
            found => found,
        },
        found => found,
    };
    let daemon = match daemon {
        Ok(daemon) => daemon,
        Err(refused) => return Ok(refused),
    };
    let (began, mut left) = (Instant::now(), Left::default());
    loop {
        let gives_back = began.elapsed() > ADOPTED_WITHIN;
        let forget = "SELECT came_to, lists, fetchers, jobs FROM forget_part($1, $2, $3)";
        let row = limited(client.query_one(forget, &[&daemon, &ROWS_STEP, &gives_back])).await?;
        left.lists += row.get::<_, i64>(1);
        left.fetchers += row.get::<_, i64>(2);
        left.jobs += row.get::<_, i64>(3);
        match row.get(0) {
            "gone" => {
                // What waits again is work for those that live.
                limited(client.batch_execute(&format!("NOTIFY {CHANNEL}"))).await?;
                return Ok(Forgotten::Gone(left));
            }
            "lives" => return Ok(Forgotten::Lives("it was started again".to_owned())),
            "adopting" => sleep(ADOPTION_LOOK_EVERY).await,
            _ => {}
        }
    }
}

/// Has a daemon do nothing from now on, unless it lives; its number.
async fn retire(client: &Client, name: &str) -> StoreResult<Result<i32, Forgotten>> {
    let asked = wait_out(async |known| {
        let retire = "SELECT daemon, taken_by, beat FROM retire($1, $2)";
        let row = limited(client.query_one(retire, &[&name, &known])).await?;
        Ok(match row.get(1) {
            Some(holder) => Asked::Taken(holder, row.get(2)),
            None => Asked::Had(row.get::<_, Option<i32>>(0)),
        })
    });
    Ok(match asked.await? {
        Ok(daemon) => daemon.ok_or(Forgotten::Unknown),
        Err(holder) => Err(Forgotten::Lives(holder)),
    })
}
