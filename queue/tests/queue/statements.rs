//! The numbered statements of spec 8 about storage, and what docs/protocol.md says of leases, single tasks and levers: scripts of
//! requests and answers. Where nothing else decides, jitter puts the keys in the order d e a c b.

use std::time::Duration;

use shiftboss_queue::context::Settings;
use shiftboss_queue::engine::STEP_KEYS;
use shiftboss_queue::policy::{Backoff, CountedEnds, Delays, Retries, RetryRules};

use crate::words::Script;

/// Each holds for a new queue; its name is after `##`. Simple cases are covered by the random histories
/// (`histories.rs`).
pub fn hold(settings: &Settings, statements: &str) {
    for statement in statements.split("\n## ").skip(1) {
        println!("{}", statement.lines().next().unwrap_or_default());
        Script::new(settings.clone()).run(&format!("## {statement}"));
    }
}

const LISTS: &str = "
## two runs hold separate rows, each with its payload; the newer one's is handed out
list f.1 a=old b=old; list f.2 a=new; ready -> job 1 a new
ready -> job 2 b old
## a key that ran before goes by its start, also of before its list
list f.1 b; ready; finish b 0; delete f.1; list f.2 a b; jobs -> a b
## a key is out once, though two lists have it
list f.1 a b; list g.1 a c; jobs -> a c b
ready -> nothing
finish a 0; jobs -> a
ready -> nothing
## a new key goes before those that are armed again, and of these the least recently started
list f.1 a b; ready; at 1; ready; finish b 0; finish a 0; list f.2 b a c; jobs -> c a b
## a line that comes late in an older run waits until the newer one goes
list f.1 b; list f.2 a; ready -> job 1 a p
finish a 0; jobs -> b
more f.1 a=late; ready -> nothing
ready -> nothing
delete f.2; ready -> job 3 a late
## of a key that occurs twice the last payload counts
list f.1 a=1 a=2; ready -> job 1 a 2
more f.1 a=3; ready -> nothing
## fetchers take turns
list f.1 a=f; list g.1 a=g; ready -> job 1 a f
finish a 0; list f.2 a=f; ready -> job 2 a g
finish a 0; list g.2 a=g; ready -> job 3 a f
finish a 0; ready -> job 4 a g
## keys that are listed earlier come first, those of one list by jitter
list f.1 b; at 3600; list g.1 c a; jobs -> b a c
## nothing of a run that goes is handed out
list f.1 a; list g.1 b; go f.1; more f.1 c -> rejected
jobs -> b
delete f.1 -> count 1
ready -> nothing
## a worker of some fetchers gets theirs alone
list f.1 a b; list g.1 a=g; lease g -> job 1 a g
lease g -> nothing
lease f -> job 2 b p
lease @tasks -> nothing
add c=t; lease @tasks -> job 3 c t
## a run that is registered again keeps its rows
list f.1 a; list f.1; jobs -> a
## deleting a run removes its rows, and leaves others'
list f.1 a b; list g.1 b c; delete f.1; jobs -> c b
## deleting and adding a run makes its keys available
list f.1 a; jobs -> a
finish a 0; delete f.1; list f.1 a; jobs -> a
## a key that is out is withheld though a newer list arms it, and released by its end
list f.1 a; jobs -> a
list f.2 a; ready -> nothing
finish a 0; jobs -> a
";

#[test]
fn lists() {
    hold(&Settings::default(), LISTS);
}

const LEASES: &str = "
## a start that somebody wrote of a job that is out is nobody else's: given back, its key is free
list f.1 a; lease -> job 1 a p
log a 1699999990; release 1 -> recorded
jobs -> a
## a late DONE of a classic worker counts until its key is handed out again
list f.1 a b; ready -> job 1 a p
expire 1 -> expired a false
finish a 0; jobs -> b
ready -> nothing
done 1 0 -> recorded
list f.2 a; ready -> job 3 a p
expire 3 -> expired a false
ready -> job 4 a p
expire 4 -> expired a true
## a lease that expires is counted, and the second one makes a dead letter
list f.1 a; lease; expire 1 -> expired a false
lease -> job 2 a p
expire 2 -> expired a true
lease -> nothing
retry a -> back 1
lease -> job 3 a p
## a dead letter leaves its fetcher its turn
list g.1 a=g; add a=1; lease -> job 1 a 1
done 1 0; lease -> job 2 a g
expire 2; lease -> job 3 a g
expire 3 -> expired a true
list g.2 a=new; add a=2; lease -> job 4 a new
## a task whose list is gone makes no dead letter
list f.1 a; lease; expire 1; lease; delete f.1; expire 2 -> expired a false
## the result of an attempt that expired counts, as long as its key was not handed out
list f.1 a; lease; expire 1; done 1 0 -> recorded
lease -> nothing
list f.2 a; lease; expire 2; lease; done 2 0 -> stale
done 3 0 -> recorded
done 9 0 -> unknown
## a late result is that of older runs' rows, too
list f.2 a; list f.1 a; ready -> job 1 a p
expire 1; delete f.2; done 1 0 -> recorded
ready -> nothing
## a hand-out that was undone in between is none
list f.1 a; lease; expire 1; lease -> job 2 a p
undo a 2; done 1 0 -> recorded
lease -> nothing
## a classic lease that expires leaves the start, and other fetchers' rows go first
list f.1 a=f; list g.1 a=g; ready -> job 1 a f
at 43201; expire 1 -> expired a false
ready -> job 2 a g
finish a 0; ready -> job 3 a f
## what is out is listed, and from when on for how long
list f.1 a b; leases -> none
ready; at 5; lease; restart; at 60; leases -> 1+43140, 2+60
expire 1 -> expired a false
done 2 0; leases -> none
## leases outlive a restart
list f.1 a; lease; restart; beat 1 -> recorded
done 1 0 -> recorded
beat 1 -> stale
## what a database had in flight that was taken over is kept for a classic lease
list f.1 a; log a 1699999000; ready -> nothing
at 42200; wake; ready -> nothing
at 42201; wake; ready -> job 1 a p
## a hand-out that is undone has not happened
list f.1 a b; lease -> job 1 a p
undo a 1 -> true
undo a 1 -> false
jobs -> a b
## a job that is given back is at its old place
list f.1 a b; lease -> job 1 a p
release 1 -> recorded
release 1 -> recorded
done 1 0 -> stale
jobs -> a b
## requeue puts any job back, once
list f.1 a; ready; requeue a -> requeued 1
requeue a -> not in flight
requeue z -> unknown
jobs -> a
";

#[test]
fn leases() {
    hold(&Settings { max_expired_leases: 2, ..Settings::default() }, LEASES);
}

const CLASSIC: &str = "
## the end of its lease is no event
list f.1 a; ready -> job 1 a p
leases -> none
expire 1 -> nothing
## single tasks wait for other rules
add a=1; ready -> nothing
list f.1 a; ready -> job 1 a p
finish a 0; ready -> nothing
## a classic job is out for 12 hours, and a leased one until it ends
list f.1 a b; ready; lease; at 43200; out -> count 2
at 43201; out -> count 1
leases -> 2+60
";

#[test]
fn classic() {
    hold(&Settings { is_fair: false, ..Settings::default() }, CLASSIC);
}

const SINGLE_TASKS: &str = "
## several of one key run first in, first out, one at a time
add a=1 -> added 1
add a=2 -> added 2
ready -> job 1 a 1
ready -> nothing
finish a 0; ready -> job 2 a 2
## the same payload that waits is known, and so is an ID, also when its task is done
add a=1 x -> added 1
add a=1 -> known
add a=2 x -> known
ready; finish a 0; add a=1 x -> known
add a=1 -> added 2
## an ID with a payload that waits is that task's from then on, if it has none
add a=1; add a=1 x -> known
add a=1 y -> known
ready; finish a 0; add a=1 x -> known
add a=1 y -> added 2
## one that failed waits for retry, and cancel takes it
add a=1; ready; finish a 1; ready -> nothing
retry a -> back 1
ready -> job 2 a 1
finish a 1; cancel a -> cancelled 1 false
retry a -> unknown
## there are no more than may be
add a=1; add b=2; add c=3; add c=4 -> full
ready; finish a 0; add c=4 -> added 4
## cancelling spares the one that is out
add a=1; add a=2; ready -> job 1 a 1
cancel a -> cancelled 1 true
finish a 0; ready -> nothing
## keys that are added keep their order
add b; add a; add c; jobs -> b a c
";

#[test]
fn single_tasks() {
    hold(&Settings { max_single_tasks: 3, ..Settings::default() }, SINGLE_TASKS);
}

const STOPS: &str = "
## its worker learns it from its next heartbeat, and gives it back: its start stands, and nothing comes back by itself
list f.1 a; lease -> job 1 a p
beat 1 -> recorded
stop a -> asked 1 w
beat 1 -> stopping
stops -> to stop: 1
release 1 -> recorded
release 1 -> recorded
done 1 0 -> stale
stops -> to stop:
ready -> nothing
counts -> rows 1
minutes -> 0:143 1
stop a -> not in flight
list f.2 a; ready -> job 2 a p
## a single task is cancelled
add a=1; lease; stop a; release 1; ready -> nothing
counts -> none
## a job that ends by itself ended so
list f.1 a; lease; stop a; done 1 3 -> recorded
counts -> rows 1, failed 1
## one whose worker is gone is cancelled when its lease ends
list f.1 a; lease; stop a; expire 1 -> expired a false
ready -> nothing
## requeued it waits, and its next job is another one
list f.1 a; lease; stop a; requeue a -> requeued 1
lease -> job 2 a p
beat 2 -> recorded
## bumped meanwhile it runs once more
list f.1 a; lease; stop a; bump a; release 1; ready -> job 2 a p
## a classic worker cannot be reached, and what nobody knows is unknown
list f.1 a; ready; stop a -> classic
stops -> to stop:
stop b -> unknown
";

#[test]
fn stops() {
    hold(&Settings::default(), STOPS);
}

const LEVERS: &str = "
## a key that is held is not handed out, and is back at its old place
list f.1 a b; hold a -> held false
jobs -> b
unhold a -> true
unhold a -> false
jobs -> a
## a key that is bumped goes before the order, as far as the credit goes
list f.1 a b c d e; bump b -> behind 0
bump c -> behind 1
bump b -> behind 0
bump c -> behind 1
jobs -> b d c e a
## a hand-out that is taken back leaves it bumped
list f.1 a c b; bump b; lease -> job 1 b p
undo b 1; jobs -> a b c
## in its place before others that are bumped, also in the batch that brings it back
list f.1 a b c d e; bump a; bump b; ready -> job 1 a p
ready; undo a 1 & ready -> true & job 3 a p
## what is held is not bumped or retried, and what nothing lists is unknown
list f.1 a; hold a; bump a -> held
retry a -> held
bump b -> unknown
retry b -> unknown
## nothing is handed out while the queue is paused
list f.1 a; pause -> count 0
ready -> nothing
restart; ready -> nothing
resume; jobs -> a
## only a key that nothing lists is forgotten
list f.1 a; forget a -> Listed
ready; forget a -> Listed
delete f.1; forget a -> InFlight
finish a 0; forget a -> Forgotten
forget a -> Unknown
## of a key that is forgotten nothing is left: no hold, no start, no attempt
list f.1 a; lease -> job 1 a p
done 1 0 -> recorded
hold a; delete f.1; forget a -> Forgotten
done 1 0 -> unknown
ran a -> never
list g.1 a; jobs -> a
## a start of a clock that was ahead counts as just now
list f.1 a b; at 34560000; jobs -> a b
finish a 0; finish b 0; at 10; list f.2 c; ready; finish c 0; at 11; list f.3 a c; wake; at 12; jobs -> c a
## a start of a clock that was ahead stands where it is seen first, and the log keeps it
list f.1 a; at 34560000; jobs -> a
finish a 0; at 10; list f.2 a; at 20; list f.3 c; ready -> job 2 c p
finish c 0; at 30; more f.2 a; hold a; unhold a; list f.4 c; ran a -> 34560000 Some(0)
ready -> job 3 a p
undo a 3; ran a -> 34560000 Some(0)
jobs -> a c
ran a -> 30 None
## keys that waited when the clock was set back take their turns
list f.1 a; list g.1 a; at 34560000; ready; finish a 0; at 10; due -> due in 0
wake; due -> due never
list f.2 c; at 20; ready -> job 2 c p
finish c 0; list f.3 c; at 30; wake; jobs -> a c
## edits of the log are honoured, and times that are none are rejected
list f.1 a b; log b 5 6 0; log a 9 10 0; jobs -> b a
log a -9223372036854775808 -> rejected
log b 5 6 0; list f.2 b; jobs -> b
row b f.2 0; finish b 0; jobs -> b
list f.3 b; finish b 0; row b f.3 1; ready -> nothing
## the lease of a classic job ends with a start that was long ago, and no other one does
list f.1 a b; ready -> job 1 a p
lease -> job 2 b p
log a 1699956801; log b 1699950000; ready -> nothing
log a 1699956799; ready -> job 3 a p
undo b 2 -> false
## a hold ends by itself
list f.1 a; hold a 60; at 59; wake; ready -> nothing
at 60; wake; jobs -> a
## a bumped one that is out runs once more
list f.1 a; ready; bump a -> behind 0
ready -> nothing
finish a 0; jobs -> a
finish a 0; ready -> nothing
";

#[test]
fn levers() {
    hold(&Settings { bump_share: 500, ..Settings::default() }, LEVERS);
}

const COUNTS: &str = "
## what status shows is counted
list f.1 d e; lease; ready; counts -> rows 2, in_flight 2, leased 1
expire 1; lease -> job 3 d p
counts -> rows 2, in_flight 2, leased 1, redelivered 1
expire 3 -> expired d true
counts -> rows 2, in_flight 1, dead 1
retry d -> back 1
hold d; counts -> rows 2, waiting 1, in_flight 1, held 1
unhold d; bump d; counts -> rows 2, waiting 1, in_flight 1, bumped 1
delete f.1; counts -> in_flight 1
finish e 0; counts -> none
## of a dead letter that a newer list names nothing is left
list f.1 a; lease; expire 1; lease; expire 2; counts -> rows 1, dead 1
list f.2 a; counts -> rows 2, waiting 1
## single tasks that failed, and those that are due by themselves
add a=1; add a=2; add b=1; lease; finish a 1; lease; finish b 124
counts -> rows 3, waiting 1, delayed 1, failed 1
at 70; wake; counts -> rows 3, waiting 2, failed 1
cancel a; counts -> rows 1, waiting 1
## one that is cancelled while it is delayed does not come back
add a=1; lease; finish a 124; cancel a -> cancelled 1 false
counts -> none
at 70; wake; ready -> nothing
";

#[test]
fn counts() {
    let delays = Delays::new(Duration::from_secs(60), 1.0, Duration::from_secs(60));
    let single = Some(Retries { on: CountedEnds::timeout(), most: 1, delays });
    let retries = RetryRules { single, ..RetryRules::default() };
    hold(&Settings { max_expired_leases: 2, retries, ..Settings::default() }, COUNTS);
}

const CLOCKS: &str = "
## what was listed and added while the clock was ahead waits since it is right
at 9999999; list f.1 a; add b=1; at 0; follow; wake; at 700; list g.1 c; add d=1; ready -> job 1 a p
ready -> job 2 b 1
## a job that was handed out while the clock was ahead has the lease of others
at 9999999; list f.1 a; ready -> job 1 a p
at 0; leases -> 1+43200
at 100; leases -> 1+43100
## a hold keeps its length when the clock is set forward
list f.1 a; hold a 60; at 10; clock 3600; at 3659; wake; ready -> nothing
at 3660; wake; jobs -> a
## and when it is set back
list f.1 a; hold a 60; at 10; clock -1000; at -941; wake; ready -> nothing
at -940; wake; jobs -> a
## however the clock was set while nothing ran, nothing takes longer than it was said to
list f.1 a; hold a 60; restart; at -100000; follow; at -99941; wake; ready -> nothing
at -99940; wake; jobs -> a
## a start of a clock that was ahead, of a job that somebody else has, counts for a classic lease from now on
list f.1 a; log a 1800000000; at 43200; wake; ready -> nothing
at 43201; wake; ran a -> 100000000 None
jobs -> a
";

#[test]
fn clocks() {
    hold(&Settings::default(), CLOCKS);
}

/// A hold that begins while others follow the clock does not follow it, and each of the others follows once.
#[test]
fn many_follow_the_clock_in_steps() {
    let mut script = Script::new(Settings::default());
    let keys = 2 * STEP_KEYS + 100;
    (0..keys).for_each(|key| script.run(&format!("hold k{key} 60")));
    script.run(
        "clock -3600; hold z 60; restart; follow; due -> due in 60
        at -3541; wake; counts -> held 601
        at -3540; wake; counts -> held 351
        wake; counts -> held 101
        wake; counts -> none
        due -> due never",
    );
}

/// Scripts begin 20 seconds after a full minute, and 800 after a full hour.
const SUMS: &str = "
## attempts that ended, by hour, fetcher and outcome, and jobs by minute and code
list f.1 a b; ready; at 10; finish a 0; lease; at 12; done 2 7; list f.2 a b; lease; at 20; release 3; lease
undo a 4
hours -> 0:1:failure 1 2000 0 0, 0:1:released 1 8000 1 12, 0:1:success 1 10000 0 0, 0:1:undone 1 0 1 20
minutes -> 0:0 1, 0:7 1
## a late result takes the place of the expired lease
list f.1 a; lease; at 60; expire 1; hours -> 0:1:expired 1 60000 0 0
at 3600; done 1 0; hours -> 1:1:success 1 3600000 0 0
minutes -> 60:0 1
## an end that somebody wrote counts as a job of its minute, and so does a last word
list f.1 a b; ready; ready; log b 1700000000 1700000001 3; minutes -> 0:3 1
hours -> none
finish a 0; at 60; finish a 5; minutes -> 0:3 1, 1:5 1
log c 1699999000 1699999001 0; log b 1700000000; minutes -> 0:3 1, 1:5 1
## hours are kept for 90 days, minutes for 60
list f.1 a b c; ready; finish a 0; at 3639; ready; finish c 0; minutes -> 0:0 1, 60:0 1
at 3640; ready; finish b 0; minutes -> 60:0 1, 61:0 1
at 7779999; hold a; minutes -> none
hours -> 1:1:success 2 0 0 0
";

#[test]
fn sums() {
    hold(&Settings::default(), SUMS);
}

const FAILURES: &str = "
## a task that failed is tried again when its time comes, before the order
list f.1 a b; ready -> job 1 a p
finish a 1; at 70; wake; jobs -> a b
## so often, and no more
list f.1 a; ready; finish a 1; at 70; wake; ready; finish a 1; at 400; wake; ready -> nothing
## one that is listed anew while its job is out waits, and is not delayed
list f.1 a; ready; delete f.1; list f.1 a; finish a 1; counts -> rows 1, waiting 1
## one whose row is edited meanwhile begins anew
list f.1 a; ready; finish a 1; row a f.1 1; row a f.1 0; ready -> job 2 a p
at 70; wake; finish a 0; ready -> nothing
## it goes with its list, and a newer list takes its place
list f.1 a; ready; finish a 1; delete f.1; list f.2 a; jobs -> a
at 70; wake; ready -> nothing
## a key whose jobs fail again and again is held, and freed by a success
list f.1 a; ready; finish a 124; retry a; ready; finish a 124; list f.2 a; ready -> nothing
retry a -> held
at 70; wake; ready -> job 3 a p
finish a 0; list f.3 a; ready; finish a 124; retry a -> back 1
";

#[test]
fn failures() {
    let [first, most] = [60, 600].map(Duration::from_secs);
    let delays = Delays::new(first, 1.0, most);
    let lists = Some(Retries { on: CountedEnds::failure(), most: 1, delays: delays.clone() });
    let retries = RetryRules { lists, ..RetryRules::default() };
    let after = std::num::NonZeroU32::new(2).unwrap();
    let backoff = Some(Backoff { on: CountedEnds::failed(), after, delays });
    hold(&Settings { retries, backoff, ..Settings::default() }, FAILURES);
}

const HOLD_RULES: &str = "
## a rule holds all keys with a prefix, also those that come later; they keep their places
list f.1 ab ac b; hold-all prefix a -> held false
jobs -> b
at 3600; list g.1 ad; ready -> nothing
idle -> busy 1
unhold-all prefix a -> true
unhold-all prefix a -> false
ready -> job 2 ab p
## a rule for a fetcher holds its tasks alone
list f.1 a b; list g.1 a=g; add c=1; hold-all fetcher f; hold-all fetcher @tasks; ready -> job 1 a g
ready -> nothing
finish a 0; ready -> nothing
unhold-all fetcher @tasks; ready -> job 2 c 1
unhold-all fetcher f; ready -> job 3 b p
## a job that is out goes on; what ends meanwhile is held, too
list f.1 a; lease; hold-all prefix a; done 1 0; list f.2 a; ready -> nothing
retry a -> back 0
bump a -> behind 0
unhold-all prefix a; ready -> job 2 a p
## a rule ends by itself, and its last word holds, over a restart and a clock that is set
list f.1 a; hold-all prefix a 60; due -> due in 60
hold-all prefix a 90 -> held true
restart; at 89; wake; ready -> nothing
due -> due in 1
clock -1000; due -> due in 1
pass 1; wake; ready -> job + a p
due -> due never
";

/// What the rules hold in a long queue is passed over some keys at a time, and all places follow in steps.
#[test]
fn hold_rules() {
    hold(&Settings::default(), HOLD_RULES);
    let mut script = Script::new(Settings::default());
    let keys: String = (0..3 * STEP_KEYS).map(|number| format!(" k{number}")).collect();
    script.run(&format!("list f.1{keys}; at 3600; list g.1 z; hold-all prefix k; due -> due in 0"));
    script.run("ready -> nothing\nready -> nothing\nready -> job 1 z p");
    script.run("wake; wake; wake; wake; due -> due never");
    assert_eq!(crate::subject::ready(script.store()), 0);
    script.run("unhold-all prefix k; wake; wake; wake; wake; wake; due -> due never");
    assert_eq!(crate::subject::ready(script.store()), 3 * STEP_KEYS);
}

/// With 100 seconds for keys that nothing lists.
const RETENTION: &str = "
## a key that nothing lists is forgotten so long after its last run; between two passes lies an hour
list f.1 a; ready; at 5; finish a 0; delete f.1; at 105; due -> due in 0
wake; ran a -> 0 Some(0)
due -> due never
at 3704; wake; ran a -> 0 Some(0)
due -> due never
at 3705; due -> due in 0
wake; ran a -> never
forget a -> Unknown
## and one that never ran so long after it came
list f.1 a; delete f.1; at 100; wake; forget a -> Forgotten
list f.1 a; delete f.1; restart; at 201; wake; forget a -> Unknown
## never one that a list or a single task has
list f.1 a; ready; finish a 0; add b=1; at 999; wake; ran a -> 0 Some(0)
ready -> job 2 b 1
## nor one that is out, or held
list f.1 a; lease; delete f.1; hold b; at 999; wake; unhold b -> true
ran a -> 0 None
restart; done 1 0; at 1098; wake; ran a -> 0 Some(0)
restart; at 1100; wake; ran a -> never
## nor one of whose tasks the ID is known
add a=1 it; ready; finish a 0; at 999; wake; add a=1 it -> known
## a clock that was ahead does not put it off
list f.1 a; ready; finish a 0; delete f.1; at 9999999; wake; ran a -> never
list f.1 b; ready; finish b 0; delete f.1; at 9000; due -> due in 0
";

/// Also in steps, if there are many.
#[test]
fn retention() {
    let settings = Settings { unlisted_kept: Some(100), ..Settings::default() };
    hold(&settings, RETENTION);
    let mut script = Script::new(settings);
    let keys: String = (0..=STEP_KEYS).map(|number| format!(" k{number}")).collect();
    script.run(&format!("list f.1{keys}; delete f.1; at 200; wake; due -> due never"));
    let left = |script: &mut Script| {
        (0..=STEP_KEYS).filter(|it| script.say(&format!("forget k{it}")) != "Unknown").count()
    };
    script.run("at 201; due -> due in 0");
    script.run("wake; due -> due never\nat 3800; due -> due never\nat 3801; due -> due in 0");
    assert_eq!(left(&mut script), 0);
}

/// Questions about the queue as a whole.
const QUESTIONS: &str = "
## a run says how far it was read, and how many rows it has
list f.1 a b; list g.2 b; ready; finish a 0; runs -> f.1 0 2, g.2 0 1
go g.2; runs -> f.1 0 2, g.2 0 1 deleting
register g.2 -> rejected
delete g.2 -> count 1
runs -> f.1 0 2
## what is out, and how long each has: a classic job from its hand-out on
list f.1 a b c; ready; ready; lease; idle -> busy 3
at 3600; leases -> 1+39600, 2+39600, 3+60
at 43199; leases -> 1+1, 2+1, 3+60
at 50000; leases -> 1+0, 2+0, 3+60
out -> count 3
## why there is nothing to do
list f.1 a b; pause; idle -> paused 2
go f.1; idle -> paused 0
resume; idle -> idle
## when something is due, in seconds
hold a 60; hold b; due -> due in 60
pass 59; due -> due in 1
pass 1; due -> due in 0
wake; due -> due never
## how jobs ended, for the daemon's own counts
list f.1 a; add b=1; lease; pass 2; done 1 0; list f.2 a; ready -> job 2 b 1
pass 1; finish b 124; lease; undo a 3; log a 1 2 0
ends -> f success 2000 None, @tasks timeout 1000 None, f undone 0 Some(3)
ends -> none
## of a key that nobody knows nothing is kept
finish a 0; retry a -> unknown
unhold a -> false
cancel a -> cancelled 0 false
requeue a -> unknown
forget a -> Unknown
hold a; unhold a -> true
forget a -> Unknown
";

#[test]
fn questions() {
    hold(&Settings::default(), QUESTIONS);
}
