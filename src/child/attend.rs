//! Attends to one command from its start to its end: a task that keeps its time limit, ends it when the
//! owner asks or is gone, reaps it, and waits until its output is passed on.

use std::time::Duration;

use tokio::signal::unix::Signal;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::end::End;
use super::process::Process;
use super::pump::Pump;

/// A command that was started. Dropped, it is killed.
pub struct Running {
    pid: u32,
    wish: watch::Sender<Stage>,
    ended: oneshot::Receiver<End>,
    end: Option<End>,
}

/// How far the end of a command is wanted, and has been brought about. Each is more than those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
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

    /// The same, but asks it to end once `stop` resolves.
    pub async fn wait_or_stop(&mut self, stop: impl Future<Output = ()>) -> End {
        tokio::select! {
            end = self.wait() => return end,
            () = stop => {}
        }
        self.terminate();
        self.wait().await
    }

    /// Asks the command to end (TERM to its group), and kills it when its grace is over. Its end is
    /// what it makes of that.
    pub fn terminate(&self) {
        self.ask(Stage::Terminate);
    }

    pub fn kill(&self) {
        self.ask(Stage::Kill);
    }

    /// The process id, and the process group's; somebody else's after the end.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    fn ask(&self, wish: Stage) {
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
    pumps: Option<[Pump; 2]>,
    children: Signal,
    time_limit: Option<Duration>,
    grace: Duration,
) -> Running {
    let pid = process.pid().as_raw_pid().unsigned_abs();
    let (wish, wishes) = watch::channel(Stage::Run);
    let (report, ended) = oneshot::channel();
    // A time beyond what the clock can say is no limit.
    let deadline = time_limit.and_then(|limit| Instant::now().checked_add(limit));
    let (stage, timed_out) = (Stage::Run, false);
    let attendant = Attendant { process, wishes, children, grace, stage, deadline, timed_out };
    tokio::spawn(async move {
        // The owner may have gone: then nobody wants to know.
        let _ = report.send(attendant.attend(pumps).await);
    });
    Running { pid, wish, ended, end: None }
}

struct Attendant {
    process: Process,
    wishes: watch::Receiver<Stage>,
    children: Signal,
    grace: Duration,
    stage: Stage,
    /// When the next stage comes by itself.
    deadline: Option<Instant>,
    timed_out: bool,
}

impl Attendant {
    async fn attend(mut self, pumps: Option<[Pump; 2]>) -> End {
        let end = loop {
            if let Some(end) = self.process.ended() {
                break end;
            }
            tokio::select! {
                _ = self.children.recv() => {}
                wish = next_wish(&mut self.wishes), if self.stage < Stage::Kill => self.advance(wish),
                () = at(self.deadline) => {
                    self.timed_out |= self.stage == Stage::Run;
                    self.advance(if self.stage == Stage::Run { Stage::Terminate } else { Stage::Kill });
                }
            }
        };
        self.process.reap();
        if let Some([mut out, mut err]) = pumps {
            tokio::join!(out.end(), err.end());
        }
        if self.timed_out { End::TimedOut } else { end }
    }

    fn advance(&mut self, to: Stage) {
        if to <= self.stage {
            return;
        }
        self.stage = to;
        if to == Stage::Terminate {
            self.deadline = Instant::now().checked_add(self.grace);
            self.process.terminate();
        } else {
            self.deadline = None;
            self.process.kill();
        }
    }
}

/// The owner's next wish. An owner that is gone wants the end.
async fn next_wish(wishes: &mut watch::Receiver<Stage>) -> Stage {
    match wishes.changed().await {
        Ok(()) => *wishes.borrow_and_update(),
        Err(_) => Stage::Kill,
    }
}

async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
