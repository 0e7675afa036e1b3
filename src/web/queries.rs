//! Questions to the database and the daemon, kept few however many ask: so many at once, so many that wait, and one for all who
//! ask the same within a second.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::answers::Made;

/// Questions that are asked at once: each has a thread.
const AT_ONCE: usize = 4;
/// Requests that wait for an answer.
const WAITING_MAX: usize = 64;
/// How long an answer is given to others, too.
const FRESH: Duration = Duration::from_secs(1);
/// Questions whose last answers are kept; an answer may have a megabyte.
const KEPT_MAX: usize = 32;
/// How long a question may take.
pub(super) const QUESTION_MAX: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overloaded {
    /// As many wait as may.
    Full,
    Late,
}

/// The last answer to a question, and when it was found.
type Last = Mutex<Option<(Instant, Made)>>;

/// The last answer, if it is given to others, too.
fn fresh(last: &Option<(Instant, Made)>) -> Option<Made> {
    last.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, made)| made.clone())
}

/// Places of questions, and what was answered last.
pub(super) struct Queries {
    at_once: Arc<Semaphore>,
    waiting: Semaphore,
    known: std::sync::Mutex<HashMap<String, Arc<Last>>>,
}

impl Default for Queries {
    fn default() -> Self {
        Self {
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            waiting: Semaphore::new(WAITING_MAX),
            known: std::sync::Mutex::default(),
        }
    }
}

impl Queries {
    /// The answer to a question: the last one if it is fresh, else what `ask` finds.
    pub(super) async fn answer(
        &self,
        question: &str,
        ask: impl FnOnce() -> Made + Send + 'static,
    ) -> Result<Made, Overloaded> {
        let last = self.last(question);
        // Who finds it answered waits for nobody.
        if let Ok(last) = last.try_lock()
            && let Some(made) = fresh(&last)
        {
            return Ok(made);
        }
        let asked = async {
            let mut last = last.lock().await;
            if let Some(made) = fresh(&last) {
                return Some(made);
            }
            let made = self.on_thread(ask).await?;
            *last = Some((Instant::now(), made.clone()));
            Some(made)
        };
        self.wait(asked).await
    }

    /// What `ask` finds, which is nobody else's answer.
    pub(super) async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Overloaded> {
        self.wait(self.on_thread(ask)).await
    }

    pub(super) fn forget(&self) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn last(&self, question: &str) -> Arc<Last> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= KEPT_MAX && !known.contains_key(question) {
            // What is forgotten was good for a second.
            known.clear();
        }
        Arc::clone(known.entry(question.to_owned()).or_default())
    }

    async fn wait<T>(&self, asked: impl Future<Output = Option<T>>) -> Result<T, Overloaded> {
        let _waiting = self.waiting.try_acquire().map_err(|_| Overloaded::Full)?;
        timeout(QUESTION_MAX, asked).await.ok().flatten().ok_or(Overloaded::Late)
    }

    /// A question that takes too long goes on, and keeps its place.
    async fn on_thread<T: Send + 'static>(
        &self,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let place = Arc::clone(&self.at_once).acquire_owned().await.ok()?;
        spawn_blocking(move || (ask(), place)).await.ok().map(|(found, _)| found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;

    /// Those who ask the same within a second share one question; later it is asked again.
    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_once_a_second() {
        let (queries, asked) = (Queries::default(), Arc::new(AtomicU8::new(0)));
        let ask = async || {
            let asked = Arc::clone(&asked);
            let number = move || asked.fetch_add(1, Ordering::Relaxed);
            let made = queries.answer("status", move || Made::text(number().to_string())).await;
            made.unwrap().body
        };
        let (one, two, three) = tokio::join!(ask(), ask(), ask());
        assert_eq!([one, two, three], ["0", "0", "0"]);
        tokio::time::advance(FRESH).await;
        assert_eq!(ask().await, "1");
        queries.forget();
        assert_eq!(ask().await, "2");
    }

    /// When as many questions wait as may, the next one is refused at once, and the others are answered.
    #[tokio::test]
    async fn so_many_may_wait() {
        let queries = Queries::default();
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let first = queries.answer("status", move || {
            let _ = gone.recv();
            Made::text("done")
        });
        let others: Vec<_> =
            (1..WAITING_MAX).map(|_| queries.answer("status", || Made::text("again"))).collect();
        let one_more = async {
            while queries.waiting.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
            let refused = queries.ask(|| ()).await;
            drop(go);
            refused
        };
        let (first, others, refused) =
            tokio::join!(first, futures_util::future::join_all(others), one_more);
        assert_eq!((first.unwrap().body, refused), ("done".into(), Err(Overloaded::Full)));
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(queries.waiting.available_permits(), WAITING_MAX);
    }
}
