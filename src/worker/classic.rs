//! The classic protocol, which the Python supervisor and `serve --classic` speak, for [`super::client`]: a connection
//! for each request, the next job in return for an end, and no leases, waits or releases. It does not know protocol 2.
//!
//! A daemon that closes after a `HELLO` without a byte speaks only this protocol, or is being restarted. Only two such
//! closes in a row, a second apart, show which.

use std::path::Path;
use std::time::{Duration, Instant};

use shiftboss_protocol::client::ClientError;
use shiftboss_protocol::wire::answers::{Answer, Job};
use tokio::time::sleep;

use super::connection::{Connection, Given, given};

/// The pause after a `NOJOBS`: the daemon does not wait for work.
pub const IDLE: Duration = Duration::from_secs(60);
/// Between two `HELLO`s that are closed.
const HELLO_PAUSE: Duration = Duration::from_secs(1);
/// After this time one more `HELLO` shows whether the daemon is a classic one: two restarts may have looked like that.
const DOUBT_AFTER: Duration = Duration::from_secs(600);

/// What is known of a daemon that may speak only this protocol.
#[derive(Default)]
pub struct Classic {
    /// It does; when it is greeted again.
    until: Option<Instant>,
    /// The answer to an end: the next job, or that there is none.
    pub given: Option<Given>,
}

impl Classic {
    /// Whether the daemon speaks nothing else.
    pub fn is_spoken(&self) -> bool {
        self.until.is_some()
    }

    /// Whether that need not be found out again.
    pub fn is_sure(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }

    /// The connection on which `hello` was answered; `None`: the daemon is a classic one.
    pub async fn greet(
        &mut self,
        hello: impl AsyncFn() -> Result<Connection, ClientError>,
    ) -> Result<Option<Connection>, ClientError> {
        let mut greeted = hello().await;
        // One that was a classic one is so if it closes once more.
        if self.until.take().is_none() && matches!(greeted, Err(ClientError::Closed)) {
            sleep(HELLO_PAUSE).await;
            greeted = hello().await;
        }
        if matches!(greeted, Err(ClientError::Closed)) {
            self.until = Instant::now().checked_add(DOUBT_AFTER);
            return Ok(None);
        }
        greeted.map(Some)
    }

    /// Reports an end, and keeps the job that is given for it.
    pub async fn report(&mut self, socket: &Path, job: &Job, code: u8) -> Result<(), ClientError> {
        self.given = Some(self.ask(socket, &format!("DONE {} {code}", job.shown_key())).await?);
        Ok(())
    }

    /// One request. Without an answer the daemon may have been replaced by one that speaks protocol 2.
    pub async fn ask(&mut self, socket: &Path, request: &str) -> Result<Given, ClientError> {
        let answer =
            async { Connection::connect(socket).await?.only(request, Answer::read_classic).await };
        let asked = answer.await.and_then(|answer| given(answer).map_err(ClientError::from));
        if asked.is_err() {
            self.until = Some(Instant::now());
        }
        asked
    }
}
