//! Operators' orders about one key: to run it again, to take its job back, to stop it, to hold it, to have it run
//! soon, to forget it, to delete its single tasks.

use std::sync::Arc;

use tracing::info;

use super::{Answered, Asker};
use crate::storage::messages::Perform;
use shiftboss_protocol::answers::HoldRule;
use shiftboss_protocol::model::{Key, UnixSeconds};
use shiftboss_protocol::verbs::{
    self, BumpAnswer, CancelAnswer, CancelRunningAnswer, ForgetAnswer, HoldAllAnswer, HoldAnswer,
    HoldFetcherAnswer, HoldTime, Name, Reason, RequeueAnswer, RetryAnswer, UnholdAllAnswer,
    UnholdAnswer, UnholdFetcherAnswer,
};
use shiftboss_protocol::wire::session::{ErrorCode, Refused};
use shiftboss_queue::credit::BUMPS_MAX;
use shiftboss_queue::hold_rules::{HoldOf, RULES_MAX};
use shiftboss_queue::operation::{
    Bump, Bumped, CancelTasks, Cancelled, Forget, Forgotten, HOLDS_MAX, Held, HeldAll, Hold,
    HoldAll, Requeue, Requeued, Retried, Retry, Stop, Stopped, Unhold, UnholdAll,
};

const HELD: &str = "that key is held: end that first, by `unhold`";
const CLASSIC: &str = "a classic worker has its job, and cannot be stopped; `requeue` puts the task back in the queue";
const NOBODY: &str = "no fetcher lists that key, and nobody has it";
const UNLISTED: &str = "no fetcher lists that key, and no single task has it";

fn full(what: &str, most: usize, advice: &str) -> Refused {
    let text = format!("there are as many {what} as may be ({most}); {advice}");
    Refused { code: ErrorCode::Full, text: text.into() }
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
            Held::Full => Err(full("holds", HOLDS_MAX, "end some of them first")),
        }
    }

    pub(super) async fn hold_all(&self, asked: verbs::HoldAll) -> Answered<verbs::HoldAll> {
        let verbs::HoldAll { prefix, seconds, reason } = asked;
        let of = HoldOf::Prefix(prefix.as_str().into());
        let (until, replaced) = self.hold_by_rule(of, seconds, reason).await?;
        Ok(HoldAllAnswer { prefix, until, replaced })
    }

    pub(super) async fn hold_fetcher(
        &self,
        asked: verbs::HoldFetcher,
    ) -> Answered<verbs::HoldFetcher> {
        let verbs::HoldFetcher { fetcher, seconds, reason } = asked;
        let fetcher = fetcher.to_string();
        let of = HoldOf::Fetcher(fetcher.as_str().into());
        let (until, replaced) = self.hold_by_rule(of, seconds, reason).await?;
        Ok(HoldFetcherAnswer { fetcher, until, replaced })
    }

    /// The last second of the rule, and the rule that it replaces.
    async fn hold_by_rule(
        &self,
        of: HoldOf,
        seconds: HoldTime,
        reason: Reason,
    ) -> Result<(Option<UnixSeconds>, Option<HoldRule>), Refused> {
        let (by, reason) = (Arc::clone(&self.holder.worker), reason.into_text());
        let hold = HoldAll { of: of.clone(), seconds: seconds.seconds(), reason, by };
        match self.ask(Perform(hold)).await? {
            HeldAll::Held { until, replaced } => {
                info!(?of, by = &*self.holder.worker, "An operator holds keys by a rule.");
                Ok((until, replaced.map(|rule| *rule)))
            }
            HeldAll::Full => Err(full("rules", RULES_MAX, "end some of them first")),
        }
    }

    pub(super) async fn unhold_all(&self, prefix: Key) -> Answered<verbs::UnholdAll> {
        let was_held = self.end_rule(HoldOf::Prefix(prefix.as_str().into())).await?;
        Ok(UnholdAllAnswer { prefix, was_held })
    }

    pub(super) async fn unhold_fetcher(&self, fetcher: Name) -> Answered<verbs::UnholdFetcher> {
        let fetcher = fetcher.to_string();
        let was_held = self.end_rule(HoldOf::Fetcher(fetcher.as_str().into())).await?;
        Ok(UnholdFetcherAnswer { fetcher, was_held })
    }

    async fn end_rule(&self, of: HoldOf) -> Result<bool, Refused> {
        let was_held = self.ask(Perform(UnholdAll(of.clone()))).await?;
        if was_held {
            info!(?of, by = &*self.holder.worker, "An operator ended a rule that holds keys.");
        }
        Ok(was_held)
    }

    pub(super) async fn bump(&self, key: Key) -> Answered<verbs::Bump> {
        let by = Arc::clone(&self.holder.worker);
        match self.ask(Perform(Bump { key: key.clone(), by })).await? {
            Bumped::Behind(bumped_before) => {
                self.note(&key, "An operator bumped a key.");
                Ok(BumpAnswer { key, bumped_before })
            }
            Bumped::Held => Err(Refused::new(ErrorCode::Held, HELD)),
            Bumped::Full => Err(full("bumped keys", BUMPS_MAX, "wait for some of them")),
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
            Requeued::Unknown => return Err(Refused::unknown(NOBODY)),
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
            return Err(Refused::unknown(
                "there is no single task of that key; `cancel --running` stops its job",
            ));
        }
        Ok(CancelAnswer { key, deleted, more, in_flight })
    }

    pub(super) async fn cancel_running(&self, key: Key) -> Answered<verbs::CancelRunning> {
        match self.ask(Perform(Stop(key.clone()))).await? {
            Stopped::Asked { attempt, worker } => {
                self.note(&key, "An operator has a job stopped.");
                Ok(CancelRunningAnswer { key, attempt, worker: worker.to_string() })
            }
            Stopped::Classic => Err(Refused::new(ErrorCode::Classic, CLASSIC)),
            Stopped::NotInFlight => Err(Refused::unknown("that key is not in flight")),
            Stopped::Unknown => Err(Refused::unknown(NOBODY)),
        }
    }
}
