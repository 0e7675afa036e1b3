//! How a broker is to keep queues; a value on the command line and in the configuration file.

use clap::ValueEnum;
use serde::Deserialize;

/// How the broker keeps the queues that outlive it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum QueueKind {
    /// On one node
    #[default]
    Classic,
    /// On most nodes of a cluster
    Quorum,
}
