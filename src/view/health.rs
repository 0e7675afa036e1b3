//! How a queue and its daemon are: whether a daemon is up, and what is wrong, the worst first. `status` and its `--check`, the page,
//! `top`, JSON, metrics and `/healthz` show this; none of them has a rule of its own. Pure; what is wrong is listed in
//! [`troubles`](mod@super::troubles).

use std::fmt;

use serde::{Serialize, Serializer};
use shiftboss_protocol::answers::live::Live;
use shiftboss_protocol::answers::{DaemonStatus, QueueStatus};

use super::troubles;
use crate::lock::LockState;
use crate::stores::Database;
use crate::target::Target;

/// A queue and its daemon, as they were found at one time.
#[derive(Debug)]
pub struct Snapshot {
    pub at: i64,
    pub target: Target,
    pub queue: QueueStatus,
    /// What only the memory of the daemon knows; `Ok(None)`: no daemon runs here.
    pub live: Result<Option<Live>, Unknown>,
}

impl Snapshot {
    pub fn live(&self) -> Option<&Live> {
        self.live.as_ref().ok().and_then(Option::as_ref)
    }

    pub fn up(&self) -> Up {
        Up::of(&self.target, &self.queue)
    }

    /// A daemon runs, and answers as far as this user can know.
    pub fn is_served(&self) -> bool {
        self.up() == Up::Running && !matches!(self.live, Err(Unknown::Silent(_)))
    }

    pub fn health(&self) -> Health {
        Health { up: self.up(), troubles: troubles::of(self) }
    }
}

/// Why it is not known what only the daemon knows.
#[derive(Debug)]
pub enum Unknown {
    /// It is not for this user, or the daemon has no such request.
    Withheld(String),
    /// This user may not connect: nobody knows whether the daemon answers.
    Closed(String),
    /// The daemon runs and does not answer.
    Silent(String),
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Withheld(why) | Self::Closed(why) => write!(f, "unknown: {why}"),
            Self::Silent(why) => write!(f, "no answer: {why}"),
        }
    }
}

/// The JSON object of `status`: what the daemon answers to `STATUS`, and the health.
#[derive(Serialize)]
pub struct Object<'a> {
    #[serde(flatten)]
    pub queue: &'a QueueStatus,
    pub live: Option<&'a Live>,
    pub health: Health,
}

impl<'a> From<&'a Snapshot> for Object<'a> {
    fn from(snapshot: &'a Snapshot) -> Self {
        Self { queue: &snapshot.queue, live: snapshot.live(), health: snapshot.health() }
    }
}

/// Whether a daemon is up: the one at a target's socket, or any one where a database is the target. Whether a daemon that runs also
/// answers is among the troubles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Up {
    Running,
    /// Not the one whose socket was given, but others of the queue.
    OthersOnly,
    Down,
    /// Why it is not known.
    Unknown(&'static str),
}

impl Up {
    pub fn of(target: &Target, queue: &QueueStatus) -> Self {
        let is_on_server = matches!(target.database, Database::Server(_));
        match &target.daemon {
            LockState::By(_) => Self::Running,
            LockState::Unknown(_) if running(&queue.daemons) > 0 => Self::Running,
            LockState::Free if running(&queue.daemons) > 0 => Self::OthersOnly,
            LockState::Unknown(why) if !is_on_server => Self::Unknown(why),
            LockState::Free | LockState::Unknown(_) => Self::Down,
        }
    }

    /// No daemon runs: nothing is handed out.
    pub fn is_down(self) -> bool {
        self == Self::Down
    }

    /// The daemon of the target does not run, and so none of its fetchers.
    pub fn runs_no_fetcher(self) -> bool {
        matches!(self, Self::Down | Self::OthersOnly)
    }
}

impl Serialize for Up {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match self {
            Self::Running => "running",
            Self::OthersOnly => "others_only",
            Self::Down => "down",
            Self::Unknown(_) => "unknown",
        })
    }
}

/// How many of a queue's daemons run, by what they write into its database.
pub fn running(daemons: &[DaemonStatus]) -> usize {
    daemons.iter().filter(|daemon| daemon.runs()).count()
}

#[derive(Debug, Serialize)]
pub struct Health {
    pub up: Up,
    /// The worst first.
    pub troubles: Vec<Trouble>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Something is to be known, or was asked for by somebody; work goes on, or will when he wants it.
    Warning,
    /// Something is not done, and will not be before somebody acts.
    Error,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Trouble {
    pub severity: Severity,
    /// What it is about, in a word or two: `storage`, `fetcher links`.
    pub subject: String,
    pub text: String,
    /// All of the queue stands still: a page and `top` say so above everything else.
    #[serde(skip)]
    pub stops_all: bool,
}

impl Health {
    pub fn count(&self, severity: Severity) -> usize {
        self.troubles.iter().filter(|trouble| trouble.severity == severity).count()
    }

    /// What keeps all of the queue from going on, the worst of it.
    pub fn banner(&self) -> Option<&Trouble> {
        self.troubles.iter().find(|trouble| trouble.stops_all)
    }
}

/// A line of `status --check`.
impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{severity}: {}: {}", self.subject, self.text)
    }
}
