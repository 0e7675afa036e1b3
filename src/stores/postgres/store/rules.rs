//! The rules that all daemons of a queue share: those of the one that joined last. Called when a daemon joins.

use tokio_postgres::{Client, Error};

use crate::stores::options::Options;

/// What was earned with a larger share is cut.
const SHARE: &str =
    "UPDATE bump_credit SET share = $1::int8, thousandths = least(thousandths, 1000 + $1::int8)
    WHERE share <> $1::int8";

pub(super) async fn set(client: &Client, options: &Options) -> Result<(), Error> {
    client.execute(SHARE, &[&i64::from(options.bump_share)]).await.map(drop)
}
