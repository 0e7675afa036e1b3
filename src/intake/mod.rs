//! The spool's intake: entries of the spool's queue `tasks` are accepted as single tasks, each once, and
//! removed from the spool.
//!
//! [`SpoolIntake`] is a service of the supervision tree, started by `serve`. Its [`reconciler`] know the spool (through
//! [`entries`]) and the messages of storage; no SQL, no socket.
//!
//! One actor, one round after the other. A round takes entries, which are then checked out and so nobody
//! else's; has storage accept them, in one transaction that is on disk when it answers; removes them from the
//! spool, durably; and has storage forget them. Storage knows an entry by spool, name, inode, birth time and
//! checksum from the acceptance until then. So a daemon may die between any two steps: what it had checked out is left
//! to the next one, which offers it again, and has it known if it was accepted.

mod entries;
mod reconciler;

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;

use actix::prelude::*;
use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::service::{Service, ServiceLinks};
use tokio::sync::oneshot;
use tracing::info;

use reconciler::Reconciler;
use shiftboss_spool::{Spool, Stop};

/// The service that brings a spool's tasks into the queue.
pub struct SpoolIntake {
    spool: Spool,
    stop: Stop,
    ended: Option<oneshot::Receiver<()>>,
    /// This daemon accepts the entries, and no other one.
    _lock: OwnedFd,
}

impl SpoolIntake {
    /// An intake of the tasks of `spool`, whose lock for accepting it holds.
    pub fn new(spool: Spool, lock: OwnedFd) -> std::io::Result<Self> {
        Ok(Self { spool, stop: Stop::new()?, ended: None, _lock: lock })
    }
}

impl Service for SpoolIntake {
    fn name(&self) -> &'static str {
        "the SpoolActor"
    }

    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier<String>) {
        let (end, ended) = oneshot::channel();
        self.ended = Some(ended);
        let (spool, stop) = (self.spool.clone(), self.stop.clone());
        SpoolActor { spool, stop, links, _exit_notifier: exit_notifier, _end: end }.start();
    }

    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>> {
        self.stop.stop();
        let ended = self.ended.take();
        Box::pin(async move {
            if let Some(ended) = ended {
                // It is dropped with the actor, however that ends.
                let _ = ended.await;
            }
        })
    }
}

/// Makes one round after the other until it is stopped. See the module's documentation.
struct SpoolActor {
    spool: Spool,
    stop: Stop,
    links: ServiceLinks,
    _exit_notifier: ExitNotifier<String>,
    _end: oneshot::Sender<()>,
}

impl Actor for SpoolActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        info!(spool = %self.spool.path().display(), queue = entries::QUEUE, "Taking tasks from a spool.");
        let (spool, stop, links) = (self.spool.clone(), self.stop.clone(), self.links.clone());
        let reconciler = Reconciler::new(spool, stop, links);
        ctx.spawn(reconciler.run().into_actor(self).map(|(), _, ctx| ctx.stop()));
    }
}
