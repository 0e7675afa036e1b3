//! What commands say: the helpers that all tests have.

pub use crate::common::said::*;
