//! Who keeps a queue, for `status`: its daemons, relays, the fetchers that daemons run, input directories, and rejected
//! files there. A queue in a file has one daemon, whose notes have no member's name.

use std::collections::{BTreeMap, HashMap};

use shiftboss_protocol::model::UnixSeconds;

use super::{Look, count_of};
use crate::documents::{
    FETCHER, FORGOTTEN, Gone, INPUT, Lost, MEMBER, MOVED, Member, REJECTED, RELAY, SORTED,
};
use crate::listings::{Document, Joined, Listings, read};
use shiftboss_protocol::answers::{
    DaemonState, DaemonStatus, FetcherRecord, RejectedFile, RelayStatus,
};

/// A daemon that was not heard from for this many seconds is shown as silent, whether the others take it for dead or
/// not.
const SILENT_SECONDS: i64 = 5;

/// See the module.
pub(super) struct Keepers {
    /// The lost input directory of the daemon that joined last.
    pub(super) lost: Option<Lost>,
    pub(super) fetchers: Vec<FetcherRecord>,
    pub(super) rejected: Vec<RejectedFile>,
    pub(super) daemons: Vec<DaemonStatus>,
    pub(super) relays: Vec<RelayStatus>,
    pub(super) moved_to: Option<String>,
    /// Keys that were forgotten by themselves.
    pub(super) forgotten: u64,
    /// How many keys are sorted into groups, as long as others have to be.
    pub(super) sorted: Option<i64>,
    /// The last sign of life of the daemon that was started last, if the store knows of any.
    pub(super) last_beat: Option<UnixSeconds>,
}

impl<S: Listings> Look<'_, S> {
    pub(super) async fn keepers(&mut self) -> Result<Keepers, S::Error> {
        let names = [MEMBER.name(), RELAY.name(), INPUT.name(), MOVED.name()];
        let more = [FETCHER.name(), REJECTED.name(), FORGOTTEN.name(), SORTED.name()];
        let names = names.into_iter().chain(more);
        let notes = self.store.documents(&names.collect::<Vec<_>>()).await?;
        let members: BTreeMap<String, Member> = read(&MEMBER, &notes).into_iter().collect();
        let input = read(&INPUT, &notes).into_iter().next();
        let lost = input.and_then(|(_, input)| input.lost);
        let joined = self.store.daemons().await?;
        let out: HashMap<String, i64> = self.store.owners().await?.into_iter().collect();
        let last = members.values().max_by_key(|member| member.joined);
        let mut sorted = read(&SORTED, &notes).into_iter().map(|(_, it)| it);
        let relay = |(name, it)| self.relay(name, it, &out);
        Ok(Keepers {
            fetchers: managed_fetchers(&notes, &members, lost.as_ref()),
            rejected: rejected(&notes, &members, &joined),
            relays: read(&RELAY, &notes).into_iter().map(relay).collect(),
            moved_to: read(&MOVED, &notes).into_iter().next().map(|(_, it)| it.place),
            forgotten: read(&FORGOTTEN, &notes).into_iter().map(|(_, it)| it).sum(),
            sorted: sorted.next().filter(|it| !it.is_sorted).map(|it| it.keys),
            last_beat: joined.iter().max_by_key(|it| it.started).map(|it| it.beat_at),
            daemons: self.daemons(joined, &members, &out),
            lost: last.and_then(|last| last.input.lost.clone()).or(lost),
        })
    }

    /// The fetchers that a member has lists of, by name.
    fn fetchers_of(&self, member: &Member) -> Vec<String> {
        let runs = &self.head.header.runs;
        let has_runs = |name: &str| {
            self.fetcher(name)
                .is_some_and(|id| runs.range((id, i64::MIN)..=(id, i64::MAX)).next().is_some())
        };
        let own = member.fetchers.iter();
        let own = own.filter(|name| !member.left.contains_key(*name) && has_runs(name));
        let mut fetchers: Vec<String> = own.map(ToString::to_string).collect();
        fetchers.sort_unstable();
        fetchers
    }

    fn relay(&self, name: String, it: Member, out: &HashMap<String, i64>) -> RelayStatus {
        RelayStatus {
            joined_since: it.joined,
            gone: it.gone.is_some(),
            silent: it.gone == Some(Gone::Silent),
            directory_lost_since: it.input.lost.as_ref().map(|lost| lost.since),
            rejected_files: count_of(it.rejected.len()),
            in_flight: out.get(&RELAY.of(&name)).copied().unwrap_or(0),
            fetchers: self.fetchers_of(&it),
            directory_lost_reason: it.input.lost.map(|lost| lost.reason),
            name,
        }
    }

    fn daemons(
        &self,
        joined: Vec<Joined>,
        members: &BTreeMap<String, Member>,
        out: &HashMap<String, i64>,
    ) -> Vec<DaemonStatus> {
        let now = self.context.seconds();
        let daemon = |it: Joined| {
            let member = members.get(&it.name).cloned().unwrap_or_default();
            let is_silent = now.saturating_sub(it.beat_at) > SILENT_SECONDS;
            let (state, since) = match (it.gone, member.drains_since) {
                (Some(Gone::Stopped), _) => {
                    (DaemonState::Stopped, it.gone_at.unwrap_or(it.beat_at))
                }
                (Some(Gone::Silent), _) => (DaemonState::Silent, it.beat_at),
                (None, _) if is_silent => (DaemonState::Silent, it.beat_at),
                (None, Some(since)) => (DaemonState::Draining, since),
                (None, None) => (DaemonState::Running, it.started),
            };
            // Its identity, the machine's name, and its input directory.
            let mut words = it.process.splitn(3, ' ').skip(1);
            let mut word = || words.next().filter(|it| !it.is_empty()).map(str::to_owned);
            let (host, input_dir) = (word(), word());
            DaemonStatus {
                state,
                since,
                version: it.version,
                host,
                pid: Some(it.pid).filter(|_| state != DaemonState::Stopped),
                input_dir,
                socket: Some(it.socket).filter(|socket| !socket.is_empty()),
                fetchers: self.fetchers_of(&member),
                in_flight: out.get(&MEMBER.of(&it.name)).copied().unwrap_or(0),
                went_back: member.went_back,
                name: it.name,
            }
        };
        let mut daemons: Vec<DaemonStatus> = joined.into_iter().map(daemon).collect();
        daemons.sort_by(|one, other| one.name.cmp(&other.name));
        daemons
    }
}

fn managed_fetchers(
    notes: &[Document],
    members: &BTreeMap<String, Member>,
    lost: Option<&Lost>,
) -> Vec<FetcherRecord> {
    let shown = |(name, it): (String, FetcherRecord)| {
        let whose = name.strip_suffix(&*it.name).and_then(|whose| whose.strip_suffix('/'));
        let member = whose.and_then(|whose| members.get(MEMBER.whose(whose)));
        let lost = member.map_or(lost, |member| member.input.lost.as_ref());
        managed(it, lost.map(|lost| lost.since))
    };
    let mut fetchers: Vec<_> = read(&FETCHER, notes).into_iter().map(shown).collect();
    fetchers.sort_by(|one, other| one.name.cmp(&other.name));
    fetchers
}

/// Files that were rejected by a daemon that is gone are left out, because they may be gone, too. Those of relays are
/// only counted.
fn rejected(
    notes: &[Document],
    members: &BTreeMap<String, Member>,
    joined: &[Joined],
) -> Vec<RejectedFile> {
    let own = read(&REJECTED, notes).into_iter().map(|(file, it)| (file, it, None));
    let is_gone = |name: &str| joined.iter().any(|it| it.name == name && it.gone.is_some());
    let living = members.iter().filter(|(name, _)| !is_gone(name));
    let others = living.flat_map(|(name, member)| {
        let rejected = member.rejected.clone().into_iter();
        rejected.map(|(file, it)| (file, it, Some(name.clone())))
    });
    let mut rejected: Vec<RejectedFile> = own
        .chain(others)
        .map(|(name, it, daemon)| RejectedFile { name, reason: it.reason, since: it.since, daemon })
        .collect();
    rejected.sort_by(|one, other| (&one.name, &one.daemon).cmp(&(&other.name, &other.daemon)));
    rejected
}

/// How a managed fetcher is shown: one that was broken off and must run again is not running; one that was begun since
/// the input directory was lost waits for it.
fn managed(mut fetcher: FetcherRecord, lost_since: Option<UnixSeconds>) -> FetcherRecord {
    let is_running = fetcher.state.starts_with("running");
    let began = fetcher.run_started.take_if(|_| is_running);
    let waits = began.zip(lost_since).is_some_and(|(began, lost)| began >= lost);
    if waits {
        fetcher.state = fetcher.state.replacen("running", "waiting", 1);
    }
    fetcher.run_started = began.filter(|_| !waits);
    fetcher
}
