//! What the ChangeActor and the RunActor say to each other.

use actix::prelude::*;

use super::paths::Changed;

/// To the RunActor: something changed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Changes(pub Changed);

/// To the ChangeActor: hand over, as the answer, what changed until now. It is not told once more.
#[derive(Debug, Message)]
#[rtype(result = "Changed")]
pub struct Drain;
