//! In a build without the feature `rabbitmq`: each URL of a broker is refused. In place of `broker/`.

#[path = "broker/queue_kind.rs"]
mod queue_kind;
#[path = "broker/report.rs"]
#[expect(dead_code, reason = "nothing fills it here")]
mod report;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use shiftboss_actors::service::Service;
use shiftboss_actors::store::Store;
use shiftboss_queue::operation::JoinedRelay;
use shiftboss_queue::reader::Reader;

use crate::exit::{ExitCode, Failure};
use crate::stores::Polls;
use crate::url::Url;
pub use queue_kind::QueueKind;
pub(crate) use report::{
    BrokerCheck, DeadLetter, DeadLetters, Disposal, Part, PartKind, PartState,
};

pub(crate) const BROKER_PREFIX: &str = "shiftboss.";

/// None is ever made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker(Url);

#[derive(Debug, Clone)]
pub struct RelayLink {
    pub(crate) broker: Broker,
    pub(crate) name: String,
    #[expect(dead_code, reason = "no message is ever sent")]
    pub(crate) message: MessageSize,
    #[expect(dead_code, reason = "nobody is ever asked")]
    pub(crate) polls: Polls,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageSize {
    pub rows: usize,
    pub bytes: usize,
}

pub(crate) struct Opened {
    pub(crate) store: Box<dyn Store + Send>,
    pub(crate) list_store: Box<dyn Store + Send>,
    pub(crate) found: JoinedRelay,
    pub(crate) reader: Arc<dyn Reader>,
}

fn refused<T>(url: &Url) -> Result<T, Failure> {
    let text = format!(
        "this shiftboss was built without RabbitMQ, and cannot use {url}: build it with the feature `rabbitmq`"
    );
    Err(Failure::new(ExitCode::Configuration, text))
}

impl Broker {
    pub(crate) fn new(url: Url, _: &str, _: QueueKind) -> Result<Self, Failure> {
        refused(&url)
    }
}

impl fmt::Display for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) fn service(
    broker: Broker,
    _: Vec<String>,
    _: Option<PathBuf>,
) -> Result<Box<dyn Service>, Failure> {
    refused(&broker.0)
}

pub(crate) async fn open(link: RelayLink, _: impl Fn()) -> Result<Opened, Failure> {
    refused(&link.broker.0)
}

pub(crate) fn check(broker: &Broker) -> Result<BrokerCheck, Failure> {
    refused(&broker.0)
}

pub(crate) fn dead_letters(
    broker: &Broker,
    _: u16,
    _: Disposal,
    _: impl FnOnce(&DeadLetters) -> Result<bool, Failure>,
) -> Result<(), Failure> {
    refused(&broker.0)
}
