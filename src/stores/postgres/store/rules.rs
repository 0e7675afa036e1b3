//! The rules that all daemons of a queue share: those of the one that joined last. Called when a daemon joins.

use shiftboss_actors::store::{Backoff, Retries};
use shiftboss_protocol::model::TASKS_FETCHER;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error};

use crate::stores::options::Options;

/// What was earned with a larger share is cut.
const SHARE: &str =
    "UPDATE bump_credit SET share = $1::int8, thousandths = least(thousandths, 1000 + $1::int8)
    WHERE share <> $1::int8";
const BACKOFF: &str = "INSERT INTO backoff_rule VALUES ($1, $2, $3, $4)
    ON CONFLICT (is_only) DO UPDATE SET codes = $1, is_listed = $2, after = $3, delays = $4";
/// What was counted is forgotten, and the holds that came of it are over.
const NO_BACKOFF: &str =
    "WITH gone AS (DELETE FROM backoff_rule RETURNING 1), forgotten AS (DELETE FROM backoff_counts)
    UPDATE holds SET until = 0 WHERE kind = 'backoff' AND EXISTS (SELECT FROM gone)";

/// Those of all lists, '', and of single tasks, and this daemon's, $1, of its own fetchers. The other daemons' stay.
const NO_RETRIES: &str = "DELETE FROM retry_rules WHERE daemon = $1 OR fetcher IN ('', '@tasks')";
const RETRIES: &str =
    "INSERT INTO retry_rules VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (fetcher)
    DO UPDATE SET daemon = $2, most = $3, codes = $4, is_listed = $5, delays = $6";

pub(super) async fn set(client: &Client, daemon: i32, options: &Options) -> Result<(), Error> {
    loop {
        match set_all(client, daemon, options).await {
            // Another daemon's batch has holds locked, and waits for a rule.
            Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {
                client.batch_execute("ROLLBACK").await?;
            }
            answered => return answered,
        }
    }
}

/// All at once: a rule that is missing for a moment would let tasks fail.
async fn set_all(client: &Client, daemon: i32, options: &Options) -> Result<(), Error> {
    client.batch_execute("BEGIN").await?;
    set_each(client, daemon, options).await?;
    client.batch_execute("COMMIT").await
}

async fn set_each(client: &Client, daemon: i32, options: &Options) -> Result<(), Error> {
    client.execute(SHARE, &[&i64::from(options.bump_share)]).await?;
    client.execute(NO_RETRIES, &[&daemon]).await?;
    let rules = &options.retries;
    let of_all = [("", &rules.lists), (TASKS_FETCHER, &rules.single)];
    let of_all = of_all.into_iter().filter_map(|(name, rule)| Some((name, rule.as_ref()?)));
    for (fetcher, rule) in of_all.chain(rules.of_fetcher.iter().map(|(name, rule)| (&**name, rule)))
    {
        set_retries(client, daemon, fetcher, rule).await?;
    }
    match &options.backoff {
        Some(rule) => set_backoff(client, rule).await,
        None => client.execute(NO_BACKOFF, &[]).await.map(drop),
    }
}

async fn set_retries(
    client: &Client,
    daemon: i32,
    fetcher: &str,
    rule: &Retries,
) -> Result<(), Error> {
    let (ends, most) = (&rule.on, rule.most.cast_signed());
    let delays = &rule.delays.seconds;
    let values: [&(dyn ToSql + Sync); 6] =
        [&fetcher, &daemon, &most, &ends.codes, &ends.is_listed, delays];
    client.execute(RETRIES, &values).await.map(drop)
}

async fn set_backoff(client: &Client, rule: &Backoff) -> Result<(), Error> {
    let (ends, after) = (&rule.on, i64::from(rule.after.get()));
    client
        .execute(BACKOFF, &[&ends.codes, &ends.is_listed, &after, &rule.delays.seconds])
        .await
        .map(drop)
}
