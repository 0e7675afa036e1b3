//! The connection, on which statements travel together: all are sent before waiting for the first answer.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use futures_util::TryStreamExt;
use futures_util::future::join_all;
use shiftboss_queue::records::{StoreError, StoreResult};
use tokio::time::timeout;
use tokio_postgres::error::Severity;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, Statement};

use crate::error::{classify, odd};

/// The longest time for one such call: a frozen server accepts connections and never answers.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Most statements under way at once: the futures of only this many are sent in their order.
const TOGETHER_MAX: usize = 30;

pub(crate) type Param = Box<dyn ToSql + Sync + Send>;

/// A statement, and its parameters.
pub(crate) struct Ask {
    pub(crate) sql: Cow<'static, str>,
    pub(crate) params: Vec<Param>,
}

/// Writes that touch no rows of each other, as one statement: each statement wakes the server and the daemon once, which takes longer
/// than most of them do. `None`: there is none.
pub(crate) fn as_one(mut asks: Vec<Ask>) -> Option<Ask> {
    if asks.len() < 2 {
        return asks.pop();
    }
    let (parts, params) = renumbered(asks);
    let parts = parts.iter().enumerate().map(|(at, sql)| format!("w{at} AS ({sql})"));
    let sql = format!("WITH {} SELECT", parts.collect::<Vec<_>>().join(", "));
    Some(Ask { sql: sql.into(), params })
}

/// Reads of the same columns, as one statement. Rows have one more column: which of the reads found it.
pub(crate) fn union(asks: Vec<Ask>) -> Ask {
    let (parts, params) = renumbered(asks);
    let parts = parts.iter().enumerate();
    let parts = parts.map(|(at, sql)| format!("SELECT p{at}.*, {at} FROM ({sql}) AS p{at}"));
    Ask { sql: parts.collect::<Vec<_>>().join(" UNION ALL ").into(), params }
}

/// The rows of each of the `count` parts of a [`union`].
pub(crate) fn parts(rows: Vec<Row>, count: usize) -> StoreResult<Vec<Vec<Row>>> {
    let mut parts: Vec<Vec<Row>> = std::iter::repeat_with(Vec::new).take(count).collect();
    for row in rows {
        let part: i32 = row.try_get(row.len() - 1).map_err(classify)?;
        let part = usize::try_from(part).ok().and_then(|part| parts.get_mut(part));
        part.ok_or_else(|| odd("a row of no part"))?.push(row);
    }
    Ok(parts)
}

/// Their texts, with parameters renumbered for all of them together, and the parameters.
fn renumbered(asks: Vec<Ask>) -> (Vec<String>, Vec<Param>) {
    let (mut parts, mut params) = (Vec::new(), Vec::new());
    for ask in asks {
        let mut pieces = ask.sql.split('$');
        let mut text = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let digits =
                piece.len() - piece.trim_start_matches(|it: char| it.is_ascii_digit()).len();
            let number: usize = piece[..digits].parse().unwrap_or_default();
            text.push_str(&format!("${}{}", number + params.len(), &piece[digits..]));
        }
        parts.push(text);
        params.extend(ask.params);
    }
    (parts, params)
}

/// `ask!(SQL, parameter, parameter)`
macro_rules! ask {
    ($sql:expr $(, $param:expr)* $(,)?) => {
        $crate::wire::Ask { sql: std::borrow::Cow::Borrowed($sql), params: vec![$(Box::new($param) as $crate::wire::Param),*] }
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

/// `put! { COLUMNS; column: value, ... }`: one row more.
macro_rules! put {
    ($columns:expr; $($column:ident: $value:expr),+ $(,)?) => {{
        let columns = &mut $columns;
        $(columns.$column.push($value);)+
    }};
}
pub(crate) use put;

/// If a process of the server ended, it is not known what it did: if it could not write its log in the middle of a
/// commit, recovery may find that commit.
fn fault(error: &Error) -> Fault {
    let answer = error.as_db_error();
    let is_error = answer.is_some_and(|it| it.parsed_severity() == Some(Severity::Error));
    match answer.map(|it| it.code().code()) {
        Some("40001" | "40P01") => Fault::Conflict,
        Some(_) if is_error => Fault::Refused,
        _ => Fault::Lost,
    }
}

pub(crate) struct Wire {
    pub(crate) client: Client,
    /// Prepared when they are asked for the first time.
    statements: HashMap<Cow<'static, str>, Statement>,
    /// How often answers were waited for.
    pub(crate) trips: u64,
    /// Why the last call failed; `None`: it did not.
    pub(crate) fault: Option<Fault>,
}

/// Why a call failed, as far as that decides what to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Two transactions waited for each other, or one saw another's change: repeat it.
    Conflict,
    /// Nothing of it has happened.
    Refused,
    /// Its result is not known, and the connection is no longer usable.
    Lost,
}

impl Wire {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, statements: HashMap::new(), trips: 0, fault: None }
    }

    /// The rows of each, in turn.
    pub(crate) async fn send(&mut self, asks: Vec<Ask>) -> StoreResult<Vec<Vec<Row>>> {
        let asked = timeout(CALL_MAX, self.send_all(asks)).await;
        let late = |_| {
            let seconds = CALL_MAX.as_secs();
            StoreError::Busy(format!("the server did not answer within {seconds} s"))
        };
        self.fault = match &asked {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(fault(error)),
            Err(_) => Some(Fault::Lost),
        };
        asked.map_err(late)?.map_err(classify)
    }

    async fn send_all(&mut self, asks: Vec<Ask>) -> Result<Vec<Vec<Row>>, Error> {
        let new = asks.iter().map(|ask| &ask.sql);
        let new = new.filter(|sql| !is_script(sql) && !self.statements.contains_key(*sql));
        let new: BTreeSet<Cow<'static, str>> = new.cloned().collect();
        let prepare = async |sql: Cow<'static, str>| {
            let statement = self.client.prepare(&sql).await?;
            Ok((sql, statement))
        };
        let prepared: Vec<Result<_, Error>> = join_all(new.into_iter().map(prepare)).await;
        for prepared in prepared {
            let (sql, statement) = prepared?;
            self.statements.insert(sql, statement);
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
        if is_script(&ask.sql) {
            return self.client.batch_execute(&ask.sql).await.map(|()| Vec::new());
        }
        self.client.query_raw(&self.statements[&ask.sql], ask.params).await?.try_collect().await
    }
}

/// Several statements without parameters or results: they travel as one.
fn is_script(sql: &str) -> bool {
    sql.contains(';')
}
