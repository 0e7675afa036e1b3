//! The commands that give orders to a running daemon: `add`, `cancel`, `retry`, `requeue`, `hold`, `unhold`, `bump`,
//! `pause`, `resume`, `drain`, `run-fetcher`, `accept-input` and `forget`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{Argument, HoldTime, Name, Reason, checked};

use super::timeout;
use super::views::since;
use crate::client::this_user;
use crate::target::Asked;

/// Longest `--id`: the number of a line may be added to it.
const ID_BYTES_MAX: usize = 200;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Requests to the daemon. All but `health` are for its own user, root, and the group of its --operator-group.
#[derive(Debug, Subcommand)]
pub enum Operate {
    /// Add a single task, which is kept until its job ends with code 0
    ///
    /// Returns when the daemon has it on disk, and says how many keys come before it: a key that ran lately waits
    /// for its turn like any other. Several tasks of one key run one after the other; the same payload that waits
    /// already is not added twice. Exits with 75 if the daemon keeps as many as it may.
    Add(Add),
    /// Delete the single tasks of a key, unless a worker has them; or stop its running job
    ///
    /// They are deleted whatever their status. Exits with 65 if there is none, and with 75 if one is in flight: that
    /// one stays.
    ///
    /// With --running nothing is deleted. The worker that runs the key's job ends its command: by SIGTERM, and by SIGKILL
    /// when the worker's --grace is over. The outcome is `cancelled`: the start stands, and nothing is retried or counted
    /// as a failure. A single task is cancelled; a list's task is done until its next list. If the worker is gone, this
    /// happens when its lease ends. A classic worker cannot be stopped: `requeue` puts the task back. Exits with 65 then,
    /// and if the key is not in flight.
    #[command(after_help = "\
Examples:
  shiftboss cancel alpha
  shiftboss cancel --prefix https://example.org/ --dry-run
  shiftboss cancel --running alpha")]
    Cancel {
        #[command(flatten)]
        of: ManyKeys,
        /// Stop the jobs of these keys that run now
        #[arg(long, conflicts_with_all = ["prefix", "fetcher", "group", "file", "dry_run"])]
        running: bool,
    },
    /// Run a key again: put its tasks that are done, failed or dead letters back in the queue
    ///
    /// Exits with 65 if no fetcher lists the key. With --failed or --exit-code it does so for tasks whose last attempt failed, as
    /// `shiftboss tasks --status failed` shows them.
    #[command(
        after_help = "\
Examples:
  shiftboss retry alpha
  shiftboss retry --failed --since 2h --fetcher links
  shiftboss retry --exit-code 124 --prefix https://example.org/
  shiftboss tasks --status dead_letter --json | jq -r '.tasks[].key' | shiftboss retry --file - --yes",
        mut_arg("keys", |keys| keys.required_unless_present_any(["failed", "exit_code"]))
    )]
    Retry {
        #[command(flatten)]
        of: ManyKeys,
        #[command(flatten)]
        failed: FailedOnes,
    },
    /// Take back a job in flight: its task waits again, at its old place
    ///
    /// Use it when the worker is gone. The attempt is not counted. Exits with 65 if the key is unknown, or not in flight.
    #[command(after_help = "\
Example:
  shiftboss requeue alpha")]
    Requeue(KeyArguments),
    /// Keep a key from being handed out, until `unhold`, or for a time
    ///
    /// A job in flight goes on. It outlives new lists and restarts; then the key is back at its old place. Said again, the
    /// last word holds. `shiftboss tasks --held` lists the keys that are held. `retry` is refused meanwhile. Exits with 75 if 10000
    /// keys are held already.
    ///
    /// With --group no job of the group starts. With --prefix or --fetcher it makes a rule, which holds later keys, too, and may be one of 1000. Places in the order follow a
    /// rule some keys at a time; `shiftboss status` lists the rules, and says how far that is. A key that a rule alone holds may be
    /// bumped or put back by `retry`, and waits.
    Hold(Hold),
    /// End the hold of a key: it waits again, at its old place
    ///
    /// With --prefix or --fetcher it ends the holds of such keys, one by one, and the rule that `hold` made with the same words;
    /// with --group the hold of the group, and a pause and a delay that commands asked for.
    #[command(after_help = "\
Examples:
  shiftboss unhold alpha
  shiftboss unhold --prefix https://example.org/",
        mut_arg("group", |it| it.help("Instead of KEY: this group, such as host:example.org")))]
    Unhold {
        #[command(flatten)]
        of: ManyKeys,
        #[command(flatten)]
        by: By,
    },
    /// Have a key run soon: before others that wait longer, as far as there is room for that
    ///
    /// What has ended of it is put back, as by `retry`; a key in flight runs once more. Bumped keys go one after the other, and may
    /// have a tenth of all hand-outs together (`--bump-share`), so nobody else waits much longer. Said again, nothing changes.
    /// Exits with 65 if no fetcher lists the key, or it is held, and with 75 if 1000 keys are bumped already.
    #[command(after_help = "\
Examples:
  shiftboss bump alpha
  shiftboss bump --file urgent.txt")]
    Bump {
        #[command(flatten)]
        of: ManyKeys,
        #[command(flatten)]
        by: By,
    },
    /// Hand nothing out until `resume`, also after a restart
    ///
    /// Jobs in flight go on, and their ends are recorded.
    #[command(after_help = "\
Example:
  shiftboss pause
  shiftboss pause -t /run/shiftboss/worker.sock")]
    Pause(DaemonArguments),
    /// End a pause or a drain: hand tasks out again
    #[command(after_help = "\
Example:
  shiftboss resume")]
    Resume(DaemonArguments),
    /// Hand nothing out, and stop the daemon as soon as no job is in flight
    ///
    /// Waits until the daemon has gone. The queue in a file stays paused, also for the next daemon, until `resume`. On a
    /// server it is not paused: the other daemons go on, and this one's jobs alone are waited for. Exits with 69 if jobs are still in flight when
    /// the time is over; the daemon goes on draining.
    #[command(
        after_help = "\
Examples:
  shiftboss drain
  shiftboss drain --timeout 30m || shiftboss status",
        mut_arg("timeout", |timeout| timeout.help("How long to wait for the end; for ever if not given"))
    )]
    Drain(DaemonArguments),
    /// Run a managed fetcher now: one that the daemon runs itself
    ///
    /// The daemon starts a run and does not wait for its end; `shiftboss status` shows the run and its result.
    /// The next run by the clock is counted from this one. Exits with 65 if the daemon runs no fetcher of that name, and
    /// with 69 if it is running.
    #[command(after_help = "\
Example:
  shiftboss run-fetcher repology")]
    RunFetcher {
        #[command(flatten)]
        daemon: DaemonArguments,
        /// The fetcher's name
        name: String,
    },
    /// Accept the directory that is at INPUT_DIR now, though it is another one than before
    ///
    /// Use it when the input directory is lost (`shiftboss status`) and will not come back. Lists that the new one
    /// does not have leave the queue.
    #[command(after_help = "\
Example:
  shiftboss accept-input")]
    AcceptInput(DaemonArguments),
    /// Forget a key that nothing lists: when it ran, its attempts, its hold, IDs of its tasks; or a relay or daemon that is gone for good
    ///
    /// If a list names the key later, it comes first, as a key that never ran. What was summed up of its jobs stays. Exits with 65
    /// if a list or a single task has the key, or nothing is known of it, and with 69 while it is in flight.
    ///
    /// With --daemon the lists of a relay, or of one of several daemons, leave the queue, and its fetchers are free: another daemon
    /// that has lists of them takes them within a minute, and reads them from the start. What it noted of rejected files, managed
    /// fetchers and its spool goes, too. The daemons that live adopt its leased jobs; without any, those wait again. No daemon need
    /// run for that. One that was not stopped is watched for six seconds first. Of a daemon and a relay of one name the daemon is
    /// forgotten first. Exits with 75 if it lives, and with 65 if the queue has neither of that name.
    #[command(
        after_help = "\
Examples:
  shiftboss forget alpha
  shiftboss forget --prefix https://example.org/ --dry-run
  shiftboss forget --daemon builder-2 -t postgres://shiftboss@db.example/queue",
        mut_arg("keys", |keys| keys.required_unless_present("gone")),
        mut_arg("fetcher", |it| it.help("Instead of KEY: what this fetcher listed once, and nothing lists now; @tasks: single tasks"))
    )]
    Forget {
        #[command(flatten)]
        of: ManyKeys,
        /// Forget this relay or daemon instead, as `shiftboss status` names it
        #[arg(id = "gone", long = "daemon", value_name = "NAME", conflicts_with_all = ["keys", "prefix", "fetcher", "file", "yes", "dry_run", "timeout", "json"])]
        gone: Option<String>,
    },
}

#[derive(Debug, Args)]
#[command(
    after_help = "\
Examples:
  shiftboss add alpha '1.0 1.1'
  shiftboss add --file request.json alpha
  printf '%s\\n' 'alpha 1' 'bravo 2' | shiftboss add --lines",
    override_usage = "shiftboss add [OPTIONS] <KEY> <PAYLOAD>\n       \
        shiftboss add [OPTIONS] --file <FILE> <KEY>\n       \
        shiftboss add [OPTIONS] --lines [--file <FILE>]"
)]
pub struct Add {
    #[command(flatten)]
    pub daemon: DaemonArguments,
    /// The key: one word
    #[arg(required_unless_present = "lines")]
    pub key: Option<String>,
    /// All else that a worker needs: one line
    #[arg(allow_hyphen_values = true, required_unless_present_any = ["file", "lines"], conflicts_with = "file")]
    pub payload: Option<String>,
    /// Add it once, whatever becomes of this command: another task with this ID is not added
    ///
    /// One word. It is remembered as long as the task is kept, and seven days longer. With --lines, the task in line N
    /// has the ID ID.N.
    #[arg(long, value_parser = id)]
    pub id: Option<Name>,
    /// Read the payload, or the lines, from FILE; - is standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Add many: a line KEY PAYLOAD each, from --file or standard input
    ///
    /// A faulty line is named with its number; the others are added, and the exit code is 65. --json prints one
    /// object for each.
    #[arg(long, conflicts_with_all = ["key", "payload"])]
    pub lines: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss hold alpha
  shiftboss hold --for 2days --reason 'upstream is down' alpha
  shiftboss hold --prefix https://example.org/
  shiftboss hold --fetcher links --for 2h
  shiftboss hold --group host:example.org --for 1h",
    mut_arg("prefix", |it| it.help("Instead of KEY: all keys that begin with TEXT, also those that come later, by one rule")),
    mut_arg("fetcher", |it| it.help("Instead of KEY: all tasks of this fetcher, also those that come later, by one rule; @tasks: single tasks")),
    mut_arg("group", |it| it.help("Instead of KEY: this group, such as host:example.org, also what comes into it later")),
    mut_arg("dry_run", |it| it.conflicts_with_all(["prefix", "fetcher", "group"])))]
pub struct Hold {
    #[command(flatten)]
    pub of: ManyKeys,
    /// How long: a time such as 2h or 3days [default: until `unhold`]
    #[arg(long = "for", value_name = "TIME", value_parser = hold_time)]
    pub time: Option<HoldTime>,
    /// Why: a line for those who wonder
    #[arg(long, value_name = "TEXT", value_parser = checked::<Reason>)]
    pub reason: Option<Reason>,
    #[command(flatten)]
    pub by: By,
}

/// In whose name something is asked for.
#[derive(Debug, Clone, Args)]
pub struct By {
    /// Who wants it, as the daemon is to remember: one word [default: the user's name]
    #[arg(long, value_name = "NAME", value_parser = checked::<Name>)]
    pub by: Option<Name>,
}

impl By {
    pub fn name(self) -> Name {
        self.by.unwrap_or_else(this_user)
    }
}

fn hold_time(text: &str) -> Result<HoldTime, String> {
    let time = humantime::parse_duration(text).ok().and_then(HoldTime::lasting);
    time.ok_or_else(|| "give a time such as 2h or 3days, up to ten years".to_owned())
}

fn id(text: &str) -> Result<Name, String> {
    let wrong = || format!("give one word of at most {ID_BYTES_MAX} bytes");
    Some(text).filter(|text| text.len() <= ID_BYTES_MAX).and_then(Name::read).ok_or_else(wrong)
}

/// Failed tasks that are put back.
#[derive(Debug, Args)]
#[group(id = "failing", args = ["failed", "exit_code"], multiple = true)]
pub struct FailedOnes {
    /// Only tasks whose last attempt failed; alone, all of them
    #[arg(long, conflicts_with_all = ["keys", "file"])]
    pub failed: bool,
    /// The same of this exit code alone; a signal's is 128 plus its number, that of a time limit 124
    #[arg(long, value_name = "CODE", conflicts_with_all = ["keys", "file"], value_parser = clap::value_parser!(i64).range(1..))]
    pub exit_code: Option<i64>,
    /// Only those that failed since then: a time such as 2026-11-21T13:00:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "TIME", value_parser = since, requires = "failing")]
    pub since: Option<i64>,
}

/// Which keys are meant: some by name, those of a file, or a selection.
#[derive(Debug, Args)]
pub struct ManyKeys {
    #[command(flatten)]
    pub daemon: DaemonArguments,
    /// The key; or several, each by itself
    #[arg(value_name = "KEY", value_parser = key, required_unless_present_any = ["prefix", "fetcher", "group", "file"])]
    pub keys: Vec<Key>,
    /// Instead of KEY: all keys that begin with TEXT, as they are now
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["keys", "file"])]
    pub prefix: Option<String>,
    /// Instead of KEY: what the lists of this fetcher have now; @tasks: single tasks
    #[arg(long, conflicts_with_all = ["keys", "file"])]
    pub fetcher: Option<String>,
    /// Instead of KEY: the keys that have a task in this group, such as host:example.org
    #[arg(long, value_name = "NAME", conflicts_with_all = ["keys", "file"])]
    pub group: Option<String>,
    /// Instead of KEY: the keys in FILE, one a line; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "keys")]
    pub file: Option<PathBuf>,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Change nothing: only say how many keys are meant, and name the first of them
    #[arg(long, conflicts_with_all = ["keys", "yes"])]
    pub dry_run: bool,
}

impl ManyKeys {
    /// The keys that were named.
    pub fn named(self) -> KeyArguments {
        KeyArguments { daemon: self.daemon, keys: self.keys }
    }
}

#[derive(Debug, Args)]
pub struct KeyArguments {
    #[command(flatten)]
    pub daemon: DaemonArguments,
    /// The key; or several, each by itself
    #[arg(value_name = "KEY", required = true, value_parser = key)]
    pub keys: Vec<Key>,
}

fn key(text: &str) -> Result<Key, String> {
    Key::new(text).map_err(|error| error.to_string())
}

/// The daemon, and how its answer is shown.
#[derive(Debug, Clone, Args)]
pub struct DaemonArguments {
    /// How long to wait for the answer [default: 5s]
    #[arg(long, value_parser = timeout)]
    pub timeout: Option<Duration>,
    #[command(flatten)]
    pub target: Asked,
    /// Print the daemon's answer, one JSON object
    #[arg(long)]
    pub json: bool,
}

impl DaemonArguments {
    /// How long an answer is waited for.
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(ANSWER_TIMEOUT)
    }
}
