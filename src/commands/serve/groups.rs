//! Has the queue follow the `[[group]]` tables of a configuration that was read again. A service of the daemon's tree,
//! because the tree alone reaches storage.

use std::future::Future;
use std::pin::Pin;

use shiftboss_actors::exit_notifier::ExitNotifier;
use shiftboss_actors::service::{Service, ServiceLinks};
use shiftboss_actors::storage::messages::{STORE_RETRY, ask};
use shiftboss_queue::groups::GroupRules;
use shiftboss_queue::operation::SetGroups;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;
use tracing::{info, warn};

pub(super) struct Groups {
    /// The tables, now and later.
    wanted: watch::Receiver<GroupRules>,
    task: Option<JoinHandle<()>>,
}

impl Groups {
    pub(super) fn new(wanted: watch::Receiver<GroupRules>) -> Self {
        Self { wanted, task: None }
    }
}

impl Service for Groups {
    fn name(&self) -> &'static str {
        "groups"
    }

    fn start(&mut self, links: ServiceLinks, exit_notifier: ExitNotifier) {
        let wanted = self.wanted.clone();
        self.task = Some(actix_rt::spawn(async move {
            follow(links, wanted).await;
            // Nothing more is wanted: the daemon stops.
            std::future::pending::<()>().await;
            drop(exit_notifier);
        }));
    }

    fn stop(&mut self) -> Pin<Box<dyn Future<Output = ()>>> {
        self.task.take().inspect(JoinHandle::abort);
        Box::pin(std::future::ready(()))
    }
}

async fn follow(links: ServiceLinks, mut wanted: watch::Receiver<GroupRules>) {
    while wanted.changed().await.is_ok() {
        let mut is_told = false;
        // Newer ones take the place of those that cannot be written yet.
        while let Err(error) = ask(&links.storage, set(&mut wanted)).await {
            if !std::mem::replace(&mut is_told, true) {
                warn!(%error, "Groups cannot be changed now; it is tried again.");
            }
            sleep(STORE_RETRY).await;
        }
        info!("The groups of the configuration are in force.");
    }
}

fn set(wanted: &mut watch::Receiver<GroupRules>) -> SetGroups {
    SetGroups(wanted.borrow_and_update().clone())
}
