//! The commands for operators of a message broker: `broker check`, `broker dead-letters`.

use clap::{Args, Subcommand};
use shiftboss_protocol::url::Url;
use shiftboss_relay::{Broker, Disposal, QueueKind};

use super::{BROKER_QUEUES, broker, one_of, url};
use crate::exit::Failure;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss broker check amqp://shiftboss@broker.example/
  shiftboss broker dead-letters amqp://shiftboss@broker.example/")]
pub struct BrokerArguments {
    #[command(subcommand)]
    pub verb: BrokerVerb,
}

#[derive(Debug, Subcommand)]
pub enum BrokerVerb {
    /// Say whether BROKER answers, has the queues that it should have, and takes messages
    ///
    /// Shows how many messages wait in each queue, and how many connections take them. Makes nothing. Exits with 69 if
    /// something is missing, if no daemon takes what relays ask, or if the broker holds messages back; with 78 if
    /// something is declared otherwise than it should be, the broker's word on which is shown, or if its max_message_size
    /// is less than 16 MiB.
    #[command(after_help = "\
Examples:
  shiftboss broker check amqp://shiftboss@broker.example/
  shiftboss broker check --json | jq '.parts[] | select(.messages > 1000)'")]
    Check {
        #[command(flatten)]
        place: BrokerPlace,
    },
    /// Show the messages that a daemon refused, and why
    ///
    /// The oldest first. They stay where they are, unless --requeue or --drop is given; those that are not shown stay in any
    /// case. Exits with 69 if one could not be put back.
    #[command(after_help = "\
Examples:
  shiftboss broker dead-letters amqp://shiftboss@broker.example/
  shiftboss broker dead-letters --requeue -n 1000
  shiftboss broker dead-letters --drop --json | jq -r '.letters[].reason'")]
    DeadLetters {
        #[command(flatten)]
        place: BrokerPlace,
        #[command(flatten)]
        disposal: DisposalArguments,
        /// How many: 1 to 1000
        #[arg(short = 'n', long = "number", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        number: u16,
    },
}

/// What is asked, and how it is shown.
#[derive(Debug, Args)]
pub struct BrokerPlace {
    /// The URL of the broker; in SHIFTBOSS_BROKER nobody sees its password
    #[arg(env = "SHIFTBOSS_BROKER", hide_env_values = true, value_parser = url())]
    broker: Url,
    /// What the names of the daemon's queues on the broker begin with
    #[arg(
        long,
        value_name = "TEXT",
        env = "SHIFTBOSS_BROKER_PREFIX",
        default_value = "shiftboss."
    )]
    broker_prefix: String,
    /// How the daemon has the broker keep them
    #[arg(long, value_parser = one_of(BROKER_QUEUES), env = "SHIFTBOSS_BROKER_QUEUES", default_value = "classic")]
    broker_queues: QueueKind,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl BrokerPlace {
    pub fn broker(self) -> Result<Broker, Failure> {
        let broker = broker(Some(self.broker), &self.broker_prefix, self.broker_queues)?;
        broker.ok_or_else(|| Failure::usage("BROKER is missing"))
    }
}

/// At most one of them.
#[derive(Debug, Clone, Copy, Args)]
pub struct DisposalArguments {
    /// Put each one that is shown back where it came from, for a daemon that was updated, say. Each is gone here only
    /// when the broker has it there
    #[arg(long, conflicts_with = "drop")]
    requeue: bool,
    /// Delete those that are shown
    #[arg(long)]
    drop: bool,
}

impl From<DisposalArguments> for Disposal {
    fn from(typed: DisposalArguments) -> Self {
        match typed {
            DisposalArguments { requeue: true, .. } => Self::Requeue,
            DisposalArguments { drop: true, .. } => Self::Drop,
            _ => Self::Keep,
        }
    }
}
