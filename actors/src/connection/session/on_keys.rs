//! Operators' orders about one key: to run it again, to take its job back, to hold it, to have it run soon, to forget it, to delete its single tasks.

use std::sync::Arc;

use tracing::info;

use super::{ANSWER_TIMEOUT, Answered, Asker, undone};
use crate::storage::messages::Perform;
use shiftboss_protocol::answers::{HeldKey, HoldKind};
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    self, BumpAnswer, CancelAnswer, ForgetAnswer, HoldAllAnswer, HoldAnswer, RequeueAnswer,
    RetryAnswer, UnholdAllAnswer, UnholdAnswer,
};
use shiftboss_protocol::wire::session::{ErrorCode, Refused};
use shiftboss_queue::credit::BUMPS_MAX;
use shiftboss_queue::operation::{
    Bump, Bumped, CancelTasks, Cancelled, Each, Forget, Forgotten, HOLDS_MAX, Held, Hold, Requeue,
    Requeued, Retried, Retry, Unhold,
};
use shiftboss_queue::reader::Reader;

const HELD: &str = "that key is held: end that first, by `unhold`";
/// Keys with a common prefix that are changed in one step: a worker's request waits for no more.
const AT_ONCE: usize = 250;
const UNLISTED: &str = "no fetcher lists that key, and no single task has it";

fn holds_full() -> String {
    format!("there are as many holds as may be ({HOLDS_MAX}); end some of them first")
}

impl Asker {
    /// Logs the order under the name of its connection.
    fn note(&self, key: &Key, order: &str) {
        info!(key = key.as_str(), by = &*self.holder.worker, "{order}");
    }

    pub(super) async fn retry(
        &self,
        key: Key,
        fetcher: Option<Arc<str>>,
    ) -> Answered<verbs::Retry> {
        match self.ask(Perform(Retry { key: key.clone(), fetcher })).await? {
            Retried::Back(rows) => Ok(RetryAnswer { key, rows }),
            Retried::Held => Err(Refused::new(ErrorCode::Held, HELD)),
            Retried::Unknown => Err(Refused::unknown(UNLISTED)),
        }
    }

    pub(super) async fn hold(&self, asked: verbs::Hold) -> Answered<verbs::Hold> {
        let verbs::Hold { key, seconds, reason } = asked;
        let (by, reason) = (Arc::clone(&self.holder.worker), reason.into_text());
        let hold = Hold { key: key.clone(), seconds: seconds.seconds(), reason, by };
        match self.ask(Perform(hold)).await? {
            Held::Held { until, is_known, replaced } => {
                self.note(&key, "An operator holds a key.");
                let replaced = replaced.map(|hold| *hold);
                Ok(HoldAnswer { key, until, known: is_known, replaced })
            }
            Held::Full => Err(Refused::full(holds_full())),
        }
    }

    /// Holds all known keys with a prefix, some at a time, so that no worker waits for all of them. If a later step is
    /// refused, keys held by earlier steps stay held.
    pub(super) async fn hold_all(&self, asked: verbs::HoldAll) -> Answered<verbs::HoldAll> {
        let verbs::HoldAll { prefix, seconds, reason } = asked;
        let begin = prefix.clone();
        let found = self.read(ANSWER_TIMEOUT, move |reader| {
            reader.search(begin.as_str(), HOLDS_MAX).map_err(Refused::busy)
        });
        let (found, _) = found.await?;
        if found.truncated {
            let text = format!("more keys begin so than may be held ({HOLDS_MAX})");
            return Err(Refused::full(text));
        }
        let (by, seconds, reason) = (&self.holder.worker, seconds.seconds(), reason.into_text());
        let (mut held, mut replaced) = (0, 0);
        for some in found.keys.chunks(AT_ONCE) {
            let keys = some.iter().filter_map(|known| Key::new(&known.key).ok());
            let hold = |key| Hold { key, seconds, reason: reason.clone(), by: Arc::clone(by) };
            for answer in self.ask(Perform(Each(keys.map(hold).collect()))).await? {
                match answer.map_err(undone)? {
                    Held::Held { replaced: before, .. } => {
                        held += 1;
                        replaced += u64::from(before.is_some());
                    }
                    Held::Full => {
                        let text = format!("{}; {held} of these keys are held now", holds_full());
                        return Err(Refused::full(text));
                    }
                }
            }
        }
        info!(prefix = prefix.as_str(), held, by = &**by, "An operator holds keys.");
        Ok(HoldAllAnswer { prefix, held, replaced })
    }

    /// Ends operators' holds of all keys with a prefix, some at a time.
    pub(super) async fn unhold_all(&self, prefix: Key) -> Answered<verbs::UnholdAll> {
        let held = |reader: &dyn Reader| reader.held(HOLDS_MAX).map_err(Refused::busy);
        let (found, _) = self.read(ANSWER_TIMEOUT, held).await?;
        let is_meant =
            |it: &&HeldKey| it.hold.kind == HoldKind::Hold && it.key.starts_with(prefix.as_str());
        let held: Vec<_> = found.keys.iter().filter(is_meant).collect();
        let mut ended = 0;
        for some in held.chunks(AT_ONCE) {
            let keys = some.iter().filter_map(|held| Key::new(&held.key).ok());
            for answer in self.ask(Perform(Each(keys.map(Unhold).collect()))).await? {
                ended += u64::from(answer.map_err(undone)?);
            }
        }
        let by = &*self.holder.worker;
        info!(prefix = prefix.as_str(), ended, by, "An operator ended holds.");
        Ok(UnholdAllAnswer { prefix, ended })
    }

    pub(super) async fn bump(&self, key: Key) -> Answered<verbs::Bump> {
        let by = Arc::clone(&self.holder.worker);
        match self.ask(Perform(Bump { key: key.clone(), by })).await? {
            Bumped::Behind(bumped_before) => {
                self.note(&key, "An operator bumped a key.");
                Ok(BumpAnswer { key, bumped_before })
            }
            Bumped::Held => Err(Refused::new(ErrorCode::Held, HELD)),
            Bumped::Full => {
                let text = format!(
                    "there are as many bumped keys as may be ({BUMPS_MAX}); wait for some of them"
                );
                Err(Refused::full(text))
            }
            Bumped::Unknown => Err(Refused::unknown(UNLISTED)),
        }
    }

    pub(super) async fn unhold(&self, key: Key) -> Answered<verbs::Unhold> {
        let was_held = self.ask(Perform(Unhold(key.clone()))).await?;
        if was_held {
            self.note(&key, "An operator ended a hold.");
        }
        Ok(UnholdAnswer { key, was_held })
    }

    pub(super) async fn requeue(&self, key: Key) -> Answered<verbs::Requeue> {
        let attempt = match self.ask(Perform(Requeue(key.clone()))).await? {
            Requeued::Back(attempt) => Some(attempt),
            Requeued::NotInFlight => None,
            Requeued::Unknown => {
                return Err(Refused::unknown("no fetcher lists that key, and nobody has it"));
            }
        };
        Ok(RequeueAnswer { key, requeued: attempt.is_some(), attempt })
    }

    pub(super) async fn forget(&self, key: Key) -> Answered<verbs::Forget> {
        match self.ask(Perform(Forget(key.clone()))).await? {
            Forgotten::Forgotten => {
                self.note(&key, "An operator had a key forgotten.");
                Ok(ForgetAnswer { key, forgotten: true })
            }
            Forgotten::Listed => {
                let text = "a list or a single task has that key: it would jump the queue";
                Err(Refused::new(ErrorCode::Listed, text))
            }
            Forgotten::InFlight => Err(Refused::busy("that key is in flight")),
            Forgotten::Unknown => Err(Refused::unknown("nothing is known of that key")),
        }
    }

    pub(super) async fn cancel(&self, key: Key) -> Answered<verbs::Cancel> {
        let cancelled = self.ask(Perform(CancelTasks(key.clone()))).await?;
        let Cancelled { deleted, more, in_flight } = cancelled;
        if deleted == 0 && !in_flight {
            return Err(Refused::unknown("there is no single task of that key"));
        }
        Ok(CancelAnswer { key, deleted, more, in_flight })
    }
}
