//! Questions to the database and the daemon, kept few whoever asks: so many at once, so many that wait, and one for all who
//! ask the same within a second.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

/// Questions that are asked at once: each has a thread.
const AT_ONCE: usize = 4;
/// Requests that wait for an answer.
const WAITING_MAX: usize = 64;
/// How long an answer is given to others, too.
const FRESH: Duration = Duration::from_secs(1);
/// Questions whose last answers are kept; an answer may have a megabyte.
const VIEWS_MAX: usize = 32;
/// How long a question may take.
pub(super) const QUESTION_MAX: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overloaded {
    /// As many wait as may.
    Full,
    /// It took too long.
    Late,
}

/// Places of questions.
pub(super) struct Queries {
    places: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Default for Queries {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(AT_ONCE)), waiting: AtomicUsize::new(0) }
    }
}

/// One that waits, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The last answer to a question.
pub(super) struct View<T>(Mutex<Option<(Instant, T)>>);

impl<T> Default for View<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

/// The last answer, if it is given to others, too.
fn fresh<T: Clone>(last: &Option<(Instant, T)>) -> Option<T> {
    last.as_ref().filter(|(at, _)| at.elapsed() < FRESH).map(|(_, answer)| answer.clone())
}

/// The last answers to questions that differ.
pub(super) struct Views<T>(std::sync::Mutex<HashMap<String, Arc<View<T>>>>);

impl<T> Default for Views<T> {
    fn default() -> Self {
        Self(std::sync::Mutex::default())
    }
}

impl<T> Views<T> {
    /// Has all questions asked anew.
    pub(super) fn forget(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    pub(super) fn of(&self, question: &str) -> Arc<View<T>> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= VIEWS_MAX && !known.contains_key(question) {
            // What is forgotten was good for a second.
            known.clear();
        }
        Arc::clone(known.entry(question.to_owned()).or_default())
    }
}

impl Queries {
    /// The answer of a view: the last one if it is fresh, else what `ask` finds on a thread.
    pub(super) async fn answer<T: Clone + Send + 'static>(
        &self,
        view: &View<T>,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Overloaded> {
        // Who finds it answered waits for nobody.
        if let Ok(last) = view.0.try_lock()
            && let Some(answer) = fresh(&last)
        {
            return Ok(answer);
        }
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX {
            return Err(Overloaded::Full);
        }
        let asked = async {
            let mut last = view.0.lock().await;
            if let Some(answer) = fresh(&last) {
                return Some(answer);
            }
            let place = Arc::clone(&self.places).acquire_owned().await.ok()?;
            // A question that takes too long goes on, and keeps its place.
            let answer = spawn_blocking(move || (ask(), place)).await.ok()?.0;
            *last = Some((Instant::now(), answer.clone()));
            Some(answer)
        };
        let answer = timeout(QUESTION_MAX, asked).await.ok().flatten();
        drop(waiting);
        answer.ok_or(Overloaded::Late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those who ask the same within a second share one question; later it is asked again.
    #[tokio::test(start_paused = true)]
    async fn a_question_is_asked_once_a_second() {
        let (queries, view, asked) =
            (Queries::default(), View::default(), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let asked = Arc::clone(&asked);
            queries.answer(&view, move || asked.fetch_add(1, Ordering::Relaxed))
        };
        let answers = tokio::join!(ask(), ask(), ask());
        assert_eq!(answers, (Ok(0), Ok(0), Ok(0)));
        tokio::time::advance(FRESH).await;
        assert_eq!(ask().await, Ok(1));
    }

    /// Who comes when as many wait as may is told so at once, and the others have their answer.
    #[tokio::test]
    async fn so_many_may_wait() {
        let (queries, view) = (Queries::default(), View::default());
        let (go, gone) = std::sync::mpsc::channel::<()>();
        let first = queries.answer(&view, move || {
            let _ = gone.recv();
        });
        let others: Vec<_> = (1..WAITING_MAX).map(|_| queries.answer(&view, || ())).collect();
        let one_more = async {
            while queries.waiting.load(Ordering::Relaxed) < WAITING_MAX {
                tokio::task::yield_now().await;
            }
            let refused = queries.answer(&view, || ()).await;
            drop(go);
            refused
        };
        let (first, others, refused) =
            tokio::join!(first, futures_util::future::join_all(others), one_more);
        assert_eq!((first, refused), (Ok(()), Err(Overloaded::Full)));
        assert!(others.iter().all(Result::is_ok));
        assert_eq!(queries.waiting.load(Ordering::Relaxed), 0);
    }
}
