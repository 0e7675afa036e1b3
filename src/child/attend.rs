//! Attends to one command from its start to its end: a task that passes on its output, keeps its time
//! limit, ends it when the owner asks or is gone, and reaps it.

use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::end::End;
use super::process::Process;
use super::pump::Outlet;

/// A command that was started. Dropped, it is killed.
pub struct Running {
    pid: u32,
    wish: watch::Sender<Wish>,
    ended: oneshot::Receiver<End>,
    end: Option<End>,
}

/// What the owner wants of a command. Each says more than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    Run,
    Terminate,
    Kill,
}

impl Running {
    /// Waits for the command's end. All its output has been passed on then, nothing of its group is
    /// left, and it is reaped. May be dropped and called again; the end stays the same.
    pub async fn wait(&mut self) -> End {
        if let Some(end) = self.end {
            return end;
        }
        // The task ends without a word only when the runtime goes, or a sink panics: it is killed.
        let killed = End::Signal(rustix::process::Signal::KILL.as_raw() as u8);
        let end = (&mut self.ended).await.unwrap_or(killed);
        self.end = Some(end);
        end
    }

    /// Asks the command to end (TERM to its group), and kills it when its grace is over. Its end is
    /// what it makes of that.
    pub fn terminate(&self) {
        self.ask(Wish::Terminate);
    }

    pub fn kill(&self) {
        self.ask(Wish::Kill);
    }

    /// The process id, and the process group's; somebody else's after the end.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn ask(&self, wish: Wish) {
        self.wish.send_if_modified(|asked| {
            let is_more = wish > *asked;
            *asked = wish.max(*asked);
            is_more
        });
    }
}

/// Starts to attend to a command. `children` was made before the command's process.
pub fn attend(
    process: Process,
    outlet: Outlet,
    children: Signal,
    time_limit: Option<Duration>,
    grace: Duration,
) -> Running {
    let pid = process.pid().as_raw_pid().unsigned_abs();
    let (wish, wishes) = watch::channel(Wish::Run);
    let (report, ended) = oneshot::channel();
    // A time beyond what the clock can say is no limit.
    let deadline = time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let stage = Stage::Running;
    let attendant =
        Attendant { process, wishes, children, grace, stage, deadline, timed_out: false };
    tokio::spawn(async move {
        // The owner may have gone: then nobody wants to know.
        let _ = report.send(attendant.attend(outlet).await);
    });
    Running { pid, wish, ended, end: None }
}

/// How far the end of a command has been brought about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Running,
    Terminated,
    Killed,
}

struct Attendant {
    process: Process,
    wishes: watch::Receiver<Wish>,
    children: Signal,
    grace: Duration,
    stage: Stage,
    /// When the next stage comes by itself.
    deadline: Option<Instant>,
    timed_out: bool,
}

impl Attendant {
    async fn attend(mut self, mut outlet: Outlet) -> End {
        let end = loop {
            if let Some(end) = self.process.ended() {
                break end;
            }
            tokio::select! {
                _ = self.children.recv() => {}
                () = outlet.step() => {}
                wish = next_wish(&mut self.wishes), if self.stage < Stage::Killed => self.obey(wish),
                () = at(self.deadline) => self.time_is_over(),
            }
        };
        self.process.reap();
        outlet.drain().await;
        if self.timed_out { End::TimedOut } else { end }
    }

    fn obey(&mut self, wish: Wish) {
        match wish {
            Wish::Run => {}
            Wish::Terminate => self.terminate(),
            Wish::Kill => self.kill(),
        }
    }

    fn time_is_over(&mut self) {
        if self.stage == Stage::Running {
            self.timed_out = true;
            self.terminate();
        } else {
            self.kill();
        }
    }

    fn terminate(&mut self) {
        if self.stage < Stage::Terminated {
            self.stage = Stage::Terminated;
            self.deadline = Instant::now().checked_add(self.grace);
            self.process.terminate();
        }
    }

    fn kill(&mut self) {
        self.stage = Stage::Killed;
        self.deadline = None;
        self.process.kill();
    }
}

/// The owner's next wish. An owner that is gone wants the end.
async fn next_wish(wishes: &mut watch::Receiver<Wish>) -> Wish {
    match wishes.changed().await {
        Ok(()) => *wishes.borrow_and_update(),
        Err(_) => Wish::Kill,
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
