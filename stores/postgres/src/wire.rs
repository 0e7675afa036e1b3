//! The connection, on which statements travel together: what is asked at once is sent before the first answer is waited for.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use shiftboss_queue::records::{StoreError, StoreResult};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::error::classify;

/// The longest time for what is asked at once: a frozen server accepts connections and never answers.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Statements that are under way at once. So many futures at most are sent in their order.
const TOGETHER_MAX: usize = 30;

pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// A statement, and what it is about.
pub(crate) struct Ask {
    pub(crate) sql: &'static str,
    pub(crate) params: Vec<Param>,
}

/// `ask!(SQL, parameter, parameter)`
macro_rules! ask {
    ($sql:expr $(, $param:expr)* $(,)?) => {
        $crate::wire::Ask { sql: $sql, params: vec![$(Box::new($param) as $crate::wire::Param),*] }
    };
}
pub(crate) use ask;

/// Columns of one statement, an array for each of its parameters.
macro_rules! columns {
    ($(#[$doc:meta])* $name:ident { $first:ident: $type:ty, $($field:ident: $types:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Default)]
        pub(crate) struct $name {
            $first: Vec<$type>,
            $($field: Vec<$types>),*
        }

        impl $name {
            /// `None`: there is nothing to do.
            fn ask(self, sql: &'static str) -> Option<$crate::wire::Ask> {
                let is_some = !self.$first.is_empty();
                is_some.then(|| $crate::wire::ask!(sql, self.$first, $(self.$field),*))
            }
        }
    };
}
pub(crate) use columns;

/// See the module.
pub(crate) struct Wire {
    pub(crate) client: Client,
    /// Prepared when they are asked for the first time.
    statements: HashMap<&'static str, Statement>,
    /// Times that it was waited for answers.
    pub(crate) trips: u64,
}

impl Wire {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, statements: HashMap::new(), trips: 0 }
    }

    /// The rows of each, in turn.
    ///
    /// # Errors
    /// The first one's that failed.
    pub(crate) async fn send(&mut self, asks: Vec<Ask>) -> StoreResult<Vec<Vec<Row>>> {
        let asked = timeout(CALL_MAX, self.send_all(asks)).await;
        let late = |_| {
            let seconds = CALL_MAX.as_secs();
            StoreError::Busy(format!("the server did not answer within {seconds} s"))
        };
        asked.map_err(late)?.map_err(classify)
    }

    async fn send_all(&mut self, asks: Vec<Ask>) -> Result<Vec<Vec<Row>>, Error> {
        for ask in &asks {
            if !self.statements.contains_key(ask.sql) {
                let statement = self.client.prepare(ask.sql).await?;
                self.statements.insert(ask.sql, statement);
            }
        }
        let mut answers = Vec::with_capacity(asks.len());
        let mut asks = asks.into_iter().peekable();
        while asks.peek().is_some() {
            self.trips += 1;
            let together = join_all(asks.by_ref().take(TOGETHER_MAX).map(|ask| self.one(ask)));
            for answer in together.await {
                answers.push(answer?);
            }
        }
        Ok(answers)
    }

    async fn one(&self, ask: Ask) -> Result<Vec<Row>, Error> {
        self.client.query_raw(&self.statements[ask.sql], ask.params).await?.try_collect().await
    }
}
