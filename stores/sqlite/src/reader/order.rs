//! The order in which keys would be handed out now, walked from its beginning: what as many requests would get.
//!
//! For the other questions. Ids alone are gone over, along the indexes by which the daemon hands out; records are loaded by who is
//! shown them. What a key's dispatch would change is nothing to the other keys.

use rusqlite::{Params, Result};
use shiftboss_queue::credit::{Credit, Turns};
use shiftboss_queue::place::Turn;
use shiftboss_queue::records::KeyId;
use shiftboss_queue::rules::dispatch::{Scope, next_task};
use shiftboss_queue::views::WALK_MAX;

use super::{Look, limit};
use crate::ask::Ask;
use crate::code;

const READY: &str = "SELECT id FROM keys INDEXED BY in_order
    WHERE turn IS NOT NULL AND held = 0 AND turn >= ?1 ORDER BY turn, id";
/// With `--classic`: and those that somebody started before ?2, whose time is over.
const CLASSIC: &str = "SELECT id FROM (
        SELECT turn, id FROM keys INDEXED BY in_order WHERE turn IS NOT NULL AND held = 0 AND turn >= ?1
        UNION ALL SELECT turn, id FROM keys INDEXED BY in_order
        WHERE turn IS NOT NULL AND held = 1 AND turn >= ?1 AND turn < ?2
        ORDER BY turn, id)";
const LANE: &str = "SELECT key FROM extras WHERE lane IS NOT NULL ORDER BY lane LIMIT ?1";
/// Keys of runs that go are passed over so often; behind them, as far as who looks can tell, may be more.
const IN_VAIN_MAX: usize = 10_000;

impl Look<'_> {
    /// Shows each key once, the next one first, as long as `show` wants more, which is `at_most` of them. Says whether those were all
    /// keys.
    pub(super) fn walk(
        &mut self,
        at_most: usize,
        mut show: impl FnMut(&mut Self, KeyId) -> Result<bool>,
    ) -> Result<bool> {
        let mut turns = Turns::new(self.credit(), self.lane(at_most)?);
        self.walk_in_order(i64::MIN, |look, key| {
            while let Some(key) = turns.offered() {
                if !look.can_go(key)? {
                    continue;
                }
                turns.goes(key);
                if !show(look, key)? {
                    return Ok(false);
                }
            }
            if turns.is_left(&key) { show(look, key) } else { Ok(true) }
        })
    }

    /// The first key in the order, as if nothing went before it, of those that ran, or of all.
    pub(super) fn first_in_order(&mut self, that_ran: bool) -> Result<Option<KeyId>> {
        let first_turn = if that_ran { code::turn(Turn::Started(i64::MIN)) } else { i64::MIN };
        let mut first = None;
        self.walk_in_order(first_turn, |_, key| {
            first = Some(key);
            Ok(false)
        })?;
        Ok(first)
    }

    fn walk_in_order(
        &mut self,
        first_turn: i64,
        show: impl FnMut(&mut Self, KeyId) -> Result<bool>,
    ) -> Result<bool> {
        let settings = &self.context.settings;
        if settings.is_fair {
            return self.walk_along(READY, [first_turn], show);
        }
        let over = self.context.seconds().saturating_sub(settings.lease_seconds);
        self.walk_along(CLASSIC, [first_turn, code::turn(Turn::Started(over))], show)
    }

    fn walk_along(
        &mut self,
        sql: &str,
        params: impl Params,
        mut show: impl FnMut(&mut Self, KeyId) -> Result<bool>,
    ) -> Result<bool> {
        let connection = self.connection;
        let mut statement = connection.prepared(sql)?;
        let mut rows = statement.query(params)?;
        let mut in_vain = 0;
        for _ in 0..WALK_MAX {
            let Some(row) = rows.next()? else {
                return Ok(true);
            };
            let key = KeyId(row.get(0)?);
            if !self.can_go(key)? {
                in_vain += 1;
            } else if !show(self, key)? {
                return Ok(false);
            }
            if in_vain > IN_VAIN_MAX {
                break;
            }
        }
        Ok(false)
    }

    /// Whether it could be handed out: its rows may all be of runs that go, which its place does not say.
    fn can_go(&mut self, key: KeyId) -> Result<bool> {
        if self.context.going.is_empty() {
            return Ok(true);
        }
        let stored = self.loader.by_id(key)?;
        Ok(stored.is_some_and(|it| next_task(&it.record, &Scope::All, &self.context).is_some()))
    }

    /// What may go before the order, as the last batch left it.
    fn credit(&self) -> Credit {
        let settings = &self.context.settings;
        let share = if settings.is_fair { settings.bump_share } else { 0 };
        Credit::new(share, self.kept.header.credit)
    }

    /// Whether keys of the lane go before the order at all.
    pub(super) fn has_lane(&self) -> bool {
        self.credit().share() > 0
    }

    /// The first keys of the lane.
    fn lane(&self, at_most: usize) -> Result<Vec<KeyId>> {
        if !self.has_lane() {
            return Ok(Vec::new());
        }
        let ids = self.connection.values(LANE, [limit(at_most)])?;
        Ok(ids.into_iter().map(KeyId).collect())
    }
}
