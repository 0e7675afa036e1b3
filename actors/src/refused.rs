//! Why a request is not done, as its answer says it.
//!
//! Made by connections, and by the service that runs fetchers for them.

use crate::store::{ReadError, StoreError};
use shiftboss_protocol::wire::session::{ErrorCode, Fault};

/// A word for programs, and a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused(pub ErrorCode, pub String);

impl Refused {
    /// Not at present.
    pub fn busy(text: impl ToString) -> Self {
        Self(ErrorCode::Busy, text.to_string())
    }

    pub fn unknown(text: &str) -> Self {
        Self(ErrorCode::Unknown, text.to_owned())
    }
}

impl From<String> for Refused {
    fn from(text: String) -> Self {
        Self::busy(text)
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        Self::busy(error)
    }
}

impl From<ReadError> for Refused {
    fn from(error: ReadError) -> Self {
        Self::busy(error)
    }
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Self(fault.code, fault.text.to_owned())
    }
}
