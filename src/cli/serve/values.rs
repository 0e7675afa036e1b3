//! Values of `serve` that are not any number or text: parsed alike from the command line and from the
//! configuration file.

use std::str::FromStr;

use clap::ValueEnum;
use serde::Deserialize;

use crate::config::values::{TIME_IN_QUOTES, Written, parse_time};

/// Longest lease: as good as for ever, and far from where a sum of seconds overflows.
const LEASE_SECONDS_MAX: i64 = 10 * 31_557_600;

/// What an answer outlives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityChoice {
    /// A power cut
    Power,
    /// The end of the process, not of the machine; faster
    Process,
}

/// A lease in whole seconds, the unit it is counted in (spec 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written<String>")]
pub struct Lease(pub(super) i64);

impl FromStr for Lease {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lease = parse_time(text)?;
        match i64::try_from(lease.as_secs()) {
            Ok(seconds @ 1..=LEASE_SECONDS_MAX) if lease.subsec_nanos() == 0 => Ok(Self(seconds)),
            _ => Err("give whole seconds, from 1s to 10years".to_owned()),
        }
    }
}

impl TryFrom<Written<String>> for Lease {
    type Error = String;

    fn try_from(written: Written<String>) -> Result<Self, String> {
        match written {
            Written::Right(text) => text.parse(),
            Written::Wrong(_) => Err(TIME_IN_QUOTES.to_owned()),
        }
    }
}

/// How often a job is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written<u32>")]
pub struct Tries(pub(super) u32);

impl TryFrom<Written<u32>> for Tries {
    type Error = &'static str;

    fn try_from(written: Written<u32>) -> Result<Self, Self::Error> {
        match written {
            Written::Right(tries @ 1..=1000) => Ok(Self(tries)),
            _ => Err("give a whole number from 1 to 1000, without quotes"),
        }
    }
}

impl FromStr for Tries {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(tries @ 1..=1000) => Ok(Self(tries)),
            _ => Err("give a whole number from 1 to 1000".to_owned()),
        }
    }
}

/// Permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Mode(pub(super) u32);

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match u32::from_str_radix(text, 8) {
            Ok(mode) if mode <= 0o777 => Ok(Self(mode)),
            _ => Err("permission bits are octal, from 0 to 777; for example 0660".to_owned()),
        }
    }
}

impl TryFrom<String> for Mode {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}
