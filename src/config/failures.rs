//! `[job_retry]` and `[backoff]` in the configuration file: what becomes of tasks that fail, and of keys whose jobs fail again and
//! again.
//!
//! A table that is read is a rule already, so what is wrong with it is told with its line. The stores go by the rules
//! ([`Retries`], [`Backoff`]).

use std::num::NonZeroU32;
use std::time::Duration;

use serde::Deserialize;
use shiftboss_queue::policy::{
    Backoff, CountedEnds, DELAY_FACTOR_MAX, Delays, FAILURES_MAX, Retries,
};

use super::values::interval;

const DAY: Duration = Duration::from_secs(86_400);
/// Exit codes that can be named.
const CODES_MAX: usize = 256;

/// When keys are held, as a table says it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "BackoffTable")]
pub struct BackoffRule(pub Backoff);

/// How often tasks are tried again, as a table says it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "RetryTable")]
pub struct RetryRule(pub Retries);

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table: [backoff]")]
struct BackoffTable {
    on: Option<Ends>,
    after: Option<u32>,
    #[serde(default, deserialize_with = "interval")]
    first: Option<Duration>,
    factor: Option<f64>,
    #[serde(default, deserialize_with = "interval")]
    max_delay: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table, as in job_retry = { retries = 3 }")]
struct RetryTable {
    retries: Option<u32>,
    on: Option<Ends>,
    #[serde(default, deserialize_with = "interval")]
    first: Option<Duration>,
    factor: Option<f64>,
    #[serde(default, deserialize_with = "interval")]
    max_delay: Option<Duration>,
}

/// Which ends of jobs are meant.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "on is \"failed\" (any exit code but 0), \"failure\" (any but 0 and 124), \"timeout\" (124), or a list of \
        exit codes: [1, 75]"
)]
enum Ends {
    Word(Word),
    Codes(Vec<i64>),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    Failed,
    Failure,
    Timeout,
}

impl TryFrom<BackoffTable> for BackoffRule {
    type Error = String;

    fn try_from(table: BackoffTable) -> Result<Self, String> {
        let BackoffTable { on, after, first, factor, max_delay } = table;
        let after = NonZeroU32::new(after.unwrap_or(3)).filter(|after| after.get() <= FAILURES_MAX);
        let after =
            after.ok_or_else(|| format!("after is a whole number from 1 to {FAILURES_MAX}"))?;
        let first = first.unwrap_or(DAY);
        let delays = delays(first, factor, max_delay.unwrap_or(first.max(60 * DAY)))?;
        Ok(Self(Backoff { on: counted(on)?, after, delays }))
    }
}

impl TryFrom<RetryTable> for RetryRule {
    type Error = String;

    fn try_from(table: RetryTable) -> Result<Self, String> {
        let usual = Self::of_single_tasks().0;
        let most = table.retries.unwrap_or(usual.most);
        if most > FAILURES_MAX {
            return Err(format!("retries is a whole number from 0 to {FAILURES_MAX}"));
        }
        let first = table.first.unwrap_or(RetryRule::FIRST);
        let longest = table.max_delay.unwrap_or(first.max(RetryRule::MAX_DELAY));
        let delays = delays(first, table.factor, longest)?;
        Ok(Self(Retries { on: counted(table.on)?, most, delays }))
    }
}

impl RetryRule {
    const FIRST: Duration = Duration::from_secs(60);
    const MAX_DELAY: Duration = Duration::from_secs(3_600);

    /// That of single tasks, where nothing is said: no list brings them back.
    pub fn of_single_tasks() -> Self {
        let delays = Delays::new(Self::FIRST, 2.0, Self::MAX_DELAY);
        Self(Retries { on: CountedEnds::failed(), most: 3, delays })
    }
}

fn delays(first: Duration, factor: Option<f64>, longest: Duration) -> Result<Delays, String> {
    let factor = factor.unwrap_or(2.0);
    if !(1.0..=DELAY_FACTOR_MAX).contains(&factor) {
        return Err(format!("factor is a number from 1 to {DELAY_FACTOR_MAX}"));
    }
    if first > longest {
        return Err("first is longer than max_delay".to_owned());
    }
    Ok(Delays::new(first, factor, longest))
}

fn counted(ends: Option<Ends>) -> Result<CountedEnds, String> {
    Ok(match ends {
        None | Some(Ends::Word(Word::Failed)) => CountedEnds::failed(),
        Some(Ends::Word(Word::Failure)) => CountedEnds::failure(),
        Some(Ends::Word(Word::Timeout)) => CountedEnds::timeout(),
        Some(Ends::Codes(codes)) => {
            let is_right = (1..=CODES_MAX).contains(&codes.len()) && !codes.contains(&0);
            let wrong = format!("on names 1 to {CODES_MAX} exit codes, and not 0: that is success");
            return is_right.then(|| CountedEnds::listed(codes)).ok_or(wrong);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn tables_say_when_and_for_how_long() {
        let days = |days: &[i64]| days.iter().map(|days| days * 86_400).collect::<Vec<_>>();
        let BackoffRule(usual) = table("").unwrap();
        assert_eq!((usual.on, usual.after.get()), (CountedEnds::failed(), 3));
        assert_eq!(usual.delays.seconds, days(&[1, 2, 4, 8, 16, 32, 60]));
        let text = "on = [1, 75]\nafter = 1\nfirst = '2days'\nfactor = 3\nmax_delay = '9days'";
        let BackoffRule(said) = table(text).unwrap();
        assert_eq!((said.on, said.after.get()), (CountedEnds::listed(vec![1, 75]), 1));
        assert_eq!(said.delays.seconds, days(&[2, 6, 9]));
        assert_eq!(table::<RetryRule>("").unwrap(), RetryRule::of_single_tasks());
        let RetryRule(said) = table("retries = 2\nfirst = '1s'\nmax_delay = '3s'").unwrap();
        assert_eq!((said.most, said.delays.seconds), (2, vec![1, 2, 3]));
        for (word, ends) in [
            ("failed", CountedEnds::failed()),
            ("failure", CountedEnds::failure()),
            ("timeout", CountedEnds::timeout()),
        ] {
            assert_eq!(table::<RetryRule>(&format!("on = '{word}'")).unwrap().0.on, ends);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (wrong, word) in [
            ("after = 0", "after"),
            ("after = 1001", "after"),
            ("factor = 0.5", "factor"),
            ("factor = 'twice'", "f64"),
            ("first = '0s'", "from \"1s\""),
            ("first = 86400", "in quotes"),
            ("first = '9days'\nmax_delay = '8days'", "first is longer"),
            ("on = 'success'", "on is"),
            ("on = []", "exit codes"),
            ("on = [0, 1]", "exit codes"),
            ("often = 3", "unknown field"),
        ] {
            let said = table::<BackoffRule>(wrong).unwrap_err();
            assert!(said.contains(word), "{wrong}: {said}");
        }
        assert!(table::<RetryRule>("retries = 1001").unwrap_err().contains("0 to 1000"));
    }
}
