//! One connection to the server: whom to ask, and how a call is limited.
//!
//! Made by the store and by the reader; each owns its own. Nothing here knows the queue.

use std::fmt;
use std::future::{Future, poll_fn};
use std::time::Duration;

use shiftboss_actors::store::StoreError;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::Config;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::error::classify;

/// The longest time for a connection or a call: a frozen server accepts connections and never answers.
pub(super) const CALL_MAX: Duration = Duration::from_secs(5);
/// What each connection begins with. Plans must not depend on how full the tables were when they were made, so
/// the planner is given one way for each statement: along the indexes.
const SETTINGS: &str = "SET search_path = shiftboss; SET enable_hashjoin = off; SET enable_mergejoin = off;
    SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_material = off; SET jit = off;
    SET plan_cache_mode = force_generic_plan; SET synchronous_commit = on; SET client_min_messages = warning";

/// A server and a database, as their URL names them.
#[derive(Clone)]
pub(crate) struct Server(Config);

impl Server {
    /// # Errors
    /// When the text is no URL of PostgreSQL: what is wrong with it.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let mut config: Config =
            url.parse().map_err(|error: tokio_postgres::Error| error.to_string())?;
        config.application_name("shiftboss").connect_timeout(CALL_MAX);
        Ok(Self(config))
    }

    /// The same, under a name that the server shows.
    pub(super) fn named(mut self, name: &str) -> Self {
        self.0.application_name(format!("shiftboss {name}"));
        self
    }

    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub(super) async fn connect(&self) -> Result<Connection, StoreError> {
        self.connect_listening(|_| ()).await
    }

    /// The same; `heard` is called with the text of each notice.
    pub(super) async fn connect_listening(
        &self,
        heard: impl Fn(&str) + Send + 'static,
    ) -> Result<Connection, StoreError> {
        let (client, mut connection) = limited(self.0.connect(NoTls)).await?;
        let task = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|task| connection.poll_message(task)).await {
                if let AsyncMessage::Notification(notice) = message {
                    heard(notice.payload());
                }
            }
        });
        let connection = Connection { client, task };
        limited(connection.client.batch_execute(SETTINGS)).await?;
        Ok(connection)
    }
}

/// As a URL without its password.
impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts: Vec<String> =
            self.0.get_hosts().iter().map(|host| format!("{host:?}")).collect();
        write!(
            f,
            "postgres database {} at {}",
            self.0.get_dbname().unwrap_or("of the user's name"),
            hosts.join(", ")
        )
    }
}

/// Closed when it is dropped.
pub(super) struct Connection {
    pub(super) client: Client,
    task: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A call that ends in time.
///
/// # Errors
/// Its own, and `Busy` when the time is over.
pub(super) async fn limited<T>(
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    match timeout(CALL_MAX, call).await {
        Ok(answer) => answer.map_err(classify),
        Err(_) => Err(StoreError::Busy(format!(
            "the server did not answer within {} s",
            CALL_MAX.as_secs()
        ))),
    }
}
