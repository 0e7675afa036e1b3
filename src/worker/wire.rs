//! What a worker reports of a job, and what comes of that. Lines and answers are the protocol's.

pub use shiftboss_protocol::model::Idle;
pub use shiftboss_protocol::wire::answers::{Answer, Job};

/// A job that ended here.
#[derive(Debug, Clone)]
pub struct Ended {
    pub job: Job,
    /// Its exit code, as a shell would report it.
    pub code: u8,
}

/// What the daemon said to a job's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reported {
    Recorded,
    /// It never will be: the job is somebody else's by now, or forgotten.
    Refused(String),
    Busy(String),
}
