//! The verbs of protocol 2 (docs/protocol.md): each with its arguments, its answer and who may ask, in one table.
//!
//! Everything uses it: clients write a verb by its `Display`, the codec in [`wire`](crate::wire) reads it as a
//! [`Request`], the daemon answers it with its [`Verb::Answer`], `HELLO` and `shiftboss ask --help` list [`VERBS`], and
//! tests hold the document against them. What an argument may be is in [`arguments`]. Pure.

mod arguments;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::answers::live::{DaemonMetrics, Live, Report};
use crate::answers::{self, QueueStatus};
use crate::model::{Attempt, Key, Row, UnixSeconds};
use crate::wire::answers::Answer;
use crate::wire::session::{ErrorCode, Refused};
pub use arguments::{
    ASKED_SECONDS_MAX, Argument, Asks, Count, FETCHERS_MAX, FetcherName, Fetchers, HoldTime, Lease,
    Name, Reason, Wait, checked,
};
pub(crate) use arguments::{Words, escaped, number, unescaped};

pub trait Verb: fmt::Display {
    const NAME: &'static str;
    /// One JSON object; what workers ask is answered by a line of words instead.
    type Answer;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Anybody; a connection that asks it is a worker's.
    Worker,
    Anybody,
    /// The daemon's own user, root, and the group of its `--operator-group`.
    Operator,
}

/// A verb, as far as it is the same in every request.
#[derive(Debug)]
pub struct Description {
    pub name: &'static str,
    pub who: Who,
    pub help: &'static str,
    arguments: fn() -> Vec<Shown>,
    /// The members of its answer, if only this verb has that answer.
    pub members: &'static [&'static str],
    /// Reads its arguments; `None`: one is beyond its limits.
    read: fn(&mut Words<'_>) -> Option<Request>,
}

/// An argument, for people.
struct Shown {
    name: &'static str,
    is_optional: bool,
    limits: &'static str,
}

impl Shown {
    fn of<A: Argument>(name: &'static str) -> Self {
        Self { name, is_optional: A::LEFT_OUT.is_some(), limits: A::LIMITS }
    }
}

impl Description {
    /// Its line, with the names of its arguments.
    pub fn synopsis(&self) -> String {
        let arguments = (self.arguments)();
        let shown = arguments.iter().map(|it| match it.is_optional {
            true => format!(" [{}]", it.name),
            false => format!(" {}", it.name),
        });
        self.name.to_owned() + &shown.collect::<String>()
    }

    /// The same, with the limits of its arguments: the answer to a faulty line.
    fn usage(&self) -> String {
        let limited = (self.arguments)().into_iter().filter(|it| !it.limits.is_empty());
        let limits = limited.map(|it| format!("; {}: {}", it.name, it.limits));
        self.synopsis() + &limits.collect::<String>()
    }
}

impl Request {
    /// Reads a line of an opted-in connection, without its end.
    ///
    /// # Errors
    /// The answer to the line.
    pub fn read(line: &[u8]) -> Result<Self, Refused> {
        let text = std::str::from_utf8(line).map_err(|_| Refused::usage("lines are UTF-8"))?;
        let mut words = Words(Some(text));
        let name = words.word().unwrap_or_default();
        if name == "HELLO" {
            return Err(Refused::usage("HELLO is the first line of a connection"));
        }
        let verb = VERBS.iter().find(|verb| verb.name == name).ok_or(UNSUPPORTED)?;
        let request = (verb.read)(&mut words).filter(|_| words.is_empty());
        request.ok_or_else(|| Refused::usage(verb.usage()))
    }
}

const UNSUPPORTED: Refused = Refused::new(
    ErrorCode::Unsupported,
    "this daemon has no such request; its HELLO lists those it has",
);

/// Makes the types of each verb: `"NAME" Who Verb { argument: Type, ... } => Answer { member: Type, ... };`, the members of an
/// answer that has another type elsewhere left out.
macro_rules! verbs {
    ($(
        #[doc = $help:literal]
        $name:literal $who:ident $verb:ident { $($argument:ident: $type:ty),* }
            => $answer:ident $({ $($(#[$about:meta])* $member:ident: $kind:ty),* })?;
    )*) => {
        $(
            #[doc = $help]
            #[derive(Debug, Clone, PartialEq, Eq)]
            pub struct $verb { $(pub $argument: $type),* }

            impl Verb for $verb {
                const NAME: &'static str = $name;
                type Answer = $answer;
            }

            impl fmt::Display for $verb {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str($name)?;
                    $(if Some(&self.$argument) != <$type>::LEFT_OUT.as_ref() {
                        write!(f, " {}", self.$argument)?;
                    })*
                    Ok(())
                }
            }

            impl From<$verb> for Request {
                fn from(request: $verb) -> Self {
                    Self::$verb(request)
                }
            }

            $(
                #[doc = concat!("The answer to `", $name, "`.")]
                #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
                pub struct $answer { $($(#[$about])* pub $member: $kind),* }
            )?
        )*

        /// A request of an opted-in peer.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Request { $($verb($verb)),* }

        impl fmt::Display for Request {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(Self::$verb(it) => it.fmt(f)),* }
            }
        }

        impl Request {
            pub fn name(&self) -> &'static str {
                match self { $(Self::$verb(_) => $name),* }
            }

            pub fn who(&self) -> Who {
                match self { $(Self::$verb(_) => Who::$who),* }
            }
        }

        /// All verbs, in the order in which `HELLO` lists them.
        #[allow(unused_variables)] // Some have no argument to be read.
        pub static VERBS: &[Description] = &[$(Description {
            name: $name,
            who: Who::$who,
            help: $help.trim_ascii(),
            arguments: || vec![$(Shown::of::<$type>(stringify!($argument))),*],
            members: &[$($(stringify!($member)),*)?],
            read: |words| Some($verb { $($argument: words.take()?),* }.into()),
        }),*];
    };
}

/// A status without its queue: the database cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusAnswer {
    #[serde(flatten)]
    pub queue: Option<Report<QueueStatus>>,
    pub live: Option<Live>,
}

pub type WhyAnswer = Report<answers::Why>;
pub type QueueAnswer = Report<answers::Queue>;
pub type LogAnswer = Report<answers::Log>;

verbs! {
    /// Takes the next job in order, under a new attempt; if none is eligible, waits up to that long.
    "READY" Worker Ready { seconds: Wait, fetchers: Fetchers } => Answer;

    /// Records the attempt's end.
    "DONE" Worker Done { attempt: Attempt, code: i64, asks: Asks } => Answer;

    /// Restarts the attempt's lease; waits up to that long, and is answered at once when the job is to stop.
    "BEAT" Worker Beat { attempt: Attempt, seconds: Wait } => Answer;

    /// Puts the attempt's job back in the queue, at its old place; one that was to stop is cancelled.
    "RELEASE" Worker Release { attempt: Attempt } => Answer;

    /// Has the daemon close the connection.
    "QUIT" Anybody Quit {} => Answer;

    /// Asks whether the daemon can read and write its database.
    "HEALTH" Anybody Health {} => HealthAnswer { in_flight: u64, draining: bool };

    /// Asks for the daemon's own counters since its start.
    "METRICS" Anybody Metrics {} => DaemonMetrics;

    /// Asks for the state of the queue and the fetchers.
    "STATUS" Operator Status {} => StatusAnswer;

    /// Asks where a key is, and why.
    "WHY" Operator Why { key: Key } => WhyAnswer;

    /// Asks for the next keys, in the order in which they would be handed out now.
    "QUEUE" Operator Queue { count: Count } => QueueAnswer;

    /// Asks for the attempts that ended last.
    "LOG" Operator Log { count: Count } => LogAnswer;

    /// Puts the key's tasks that ended back in the queue, dead letters too.
    "RETRY" Operator Retry { key: Key } => RetryAnswer {
        key: Key,
        /// Rows and single tasks that wait again.
        rows: u64
    };

    /// Does the same for the tasks of one fetcher alone (`@tasks`: single tasks).
    "RETRY-OF" Operator RetryOf { key: Key, fetcher: FetcherName } => RetryAnswer;

    /// Puts the key's job in flight back in the queue, at its old place.
    "REQUEUE" Operator Requeue { key: Key } => RequeueAnswer {
        key: Key,
        /// False: it is not in flight.
        requeued: bool,
        attempt: Option<Attempt>
    };

    /// Hands nothing out, also after a restart.
    "PAUSE" Operator Pause {} => PauseAnswer { paused: bool };

    /// Ends a pause or a drain.
    "RESUME" Operator Resume {} => PauseAnswer;

    /// Hands nothing out, and stops the daemon as soon as no job is in flight.
    "DRAIN" Operator Drain {} => DrainAnswer { paused: bool, in_flight: u64 };

    /// Accepts the directory at the input directory's path, whatever is in it.
    "ACCEPT-INPUT" Operator AcceptInput {} => AcceptInputAnswer {
        /// False: the input directory is not lost.
        accepted: bool
    };

    /// Runs a managed fetcher now, or when its cooldown is over.
    "RUN-FETCHER" Operator RunFetcher { fetcher: FetcherName } => RunFetcherAnswer {
        fetcher: String,
        /// As it was before.
        state: String
    };

    /// Adds a single task.
    "ADD" Operator Add { task: Row } => AddAnswer {
        key: Key,
        /// False: a task with this key and payload waits already.
        added: bool,
        /// `None`: its key is in flight, or that is not known.
        keys_before: Option<u64>,
        /// False: there are more keys than that.
        exact: bool,
        tasks_before: Option<u64>
    };

    /// Adds a single task, unless one was added with this ID.
    "ADD-ONCE" Operator AddOnce { id: Name, task: Row } => AddAnswer;

    /// Keeps the key from being handed out, for that many seconds, or with `-` until `UNHOLD`.
    "HOLD" Operator Hold { key: Key, seconds: HoldTime, reason: Reason } => HoldAnswer {
        key: Key,
        /// Its last second; `None`: until somebody ends it.
        until: Option<UnixSeconds>,
        /// False: no list has it, and it never ran.
        known: bool,
        replaced: Option<answers::Hold>
    };

    /// Does the same to all keys with this prefix, also to later ones, by one rule.
    "HOLD-ALL" Operator HoldAll { prefix: Key, seconds: HoldTime, reason: Reason } => HoldAllAnswer {
        prefix: Key,
        until: Option<UnixSeconds>,
        replaced: Option<answers::HoldRule>
    };

    /// Does the same to all tasks of a fetcher.
    "HOLD-FETCHER" Operator HoldFetcher { fetcher: Name, seconds: HoldTime, reason: Reason } => HoldFetcherAnswer {
        fetcher: String,
        until: Option<UnixSeconds>,
        replaced: Option<answers::HoldRule>
    };

    /// Closes a group, for that many seconds, or with `-` until `UNHOLD-GROUP`.
    "HOLD-GROUP" Operator HoldGroup { group: Name, seconds: HoldTime, reason: Reason } => HoldGroupAnswer {
        group: String,
        /// Its last second; `None`: until somebody ends it.
        until: Option<UnixSeconds>,
        /// It was held before.
        replaced: bool,
        /// How many tasks are in it now.
        tasks: i64
    };

    /// Ends the group's hold, and a pause and a delay that commands asked for; `was_held`: there was one of these.
    "UNHOLD-GROUP" Operator UnholdGroup { group: Name } => UnholdGroupAnswer { group: String, was_held: bool };

    /// Has the key run soon, before others that wait longer.
    "BUMP" Operator Bump { key: Key } => BumpAnswer { key: Key, bumped_before: u64 };

    /// Forgets a key that nothing lists.
    "FORGET" Operator Forget { key: Key } => ForgetAnswer { key: Key, forgotten: bool };

    /// Ends the key's hold: it waits at its old place.
    "UNHOLD" Operator Unhold { key: Key } => UnholdAnswer { key: Key, was_held: bool };

    /// Ends the rule that holds all keys with this prefix.
    "UNHOLD-ALL" Operator UnholdAll { prefix: Key } => UnholdAllAnswer { prefix: Key, was_held: bool };

    /// Ends the rule that holds all tasks of a fetcher.
    "UNHOLD-FETCHER" Operator UnholdFetcher { fetcher: Name } => UnholdFetcherAnswer { fetcher: String, was_held: bool };

    /// Deletes the key's single tasks, except one in flight.
    "CANCEL" Operator Cancel { key: Key } => CancelAnswer {
        key: Key,
        deleted: u64,
        /// There may be more: ask again.
        more: bool,
        /// One is in flight, and stays.
        in_flight: bool
    };

    /// Has the worker that runs the key's job stop it: the attempt is cancelled.
    "CANCEL-RUNNING" Operator CancelRunning { key: Key } => CancelRunningAnswer {
        key: Key,
        /// The attempt that is to stop, and its worker.
        attempt: Attempt,
        worker: String
    };
}
