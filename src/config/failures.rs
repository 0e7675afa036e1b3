//! `[job_retry]` and `[backoff]` in the configuration file: what happens to tasks that fail, and to keys whose jobs
//! fail repeatedly. They become the queue's rules ([`Retries`], [`Backoff`]).

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use clap::{Args, value_parser};
use shiftboss_queue::policy::{
    Backoff, CountedEnds, DELAY_FACTOR_MAX, Delays, FAILURES_MAX, Retries,
};
use toml::de::DeTable;

use super::Fault;
use super::keys::{Keys, Value, fault, of_value};
use super::values::parse_interval;

/// Exit codes that can be named.
const CODES_MAX: usize = 256;

/// The keys of `[job_retry]`.
#[derive(Debug, Args)]
pub struct RetryKeys {
    /// How often a task is tried again, 0 to 1000
    #[arg(value_name = "N", default_value = "3", value_parser = value_parser!(u32).range(0..=i64::from(FAILURES_MAX)))]
    retries: u32,
    #[command(flatten)]
    ends: Ends,
    /// How long the first delay is, from `1s` on; a tenth more or less, so that what failed together does not come back
    /// together
    #[arg(default_value = "1min", value_parser = parse_interval)]
    first: Duration,
    /// But for no longer than this, up to `366days` [default: 1h]
    #[arg(value_parser = parse_interval)]
    max_delay: Option<Duration>,
}

/// The keys of `[backoff]`.
#[derive(Debug, Args)]
pub struct BackoffKeys {
    #[command(flatten)]
    ends: Ends,
    /// A key is held from so many in a row on, 1 to 1000
    #[arg(value_name = "N", default_value = "3", value_parser = parse_after)]
    after: NonZeroU32,
    /// For how long then, from `1s` on; a tenth more or less, so that keys that failed together do not come back together
    #[arg(default_value = "1day", value_parser = parse_interval)]
    first: Duration,
    /// But for no longer than this, up to `366days` [default: 60days]
    #[arg(value_parser = parse_interval)]
    max_delay: Option<Duration>,
}

/// Which ends of jobs are meant, and what is the same of all rules.
#[derive(Debug, Args)]
struct Ends {
    /// Which ends count: `"failed"`, any exit code but 0; `"failure"`, any but 0 and 124; `"timeout"`, 124; or a list of exit
    /// codes: `[1, 75]`
    #[arg(value_name = "WORD|N", default_value = "failed", value_delimiter = ',', value_parser = parse_end)]
    on: Vec<CountedEnds>,
    /// By how much longer with each more, 1 to 100
    #[arg(value_name = "N", default_value = "2", value_parser = parse_factor)]
    factor: f64,
}

impl Keys for RetryKeys {}
impl Keys for BackoffKeys {}

/// The rule that a table `job_retry` says.
pub fn retries(table: &Value<'_>) -> Result<Retries, Fault> {
    let RetryKeys { retries: most, ends, first, max_delay } = of_value(table, Path::new(""))?;
    let longest = max_delay.unwrap_or(first.max(Duration::from_secs(3_600)));
    let rule = ends.rule(first, longest).map(|(on, delays)| Retries { on, most, delays });
    rule.map_err(|what| fault(table, what))
}

/// That of single tasks, where nothing is said: no list brings them back.
pub fn retries_of_single_tasks() -> Result<Retries, Fault> {
    retries(&Value::new(0..0, toml::de::DeValue::Table(DeTable::new())))
}

/// The rule that a table `backoff` says.
pub fn backoff(table: &Value<'_>) -> Result<Backoff, Fault> {
    let BackoffKeys { ends, after, first, max_delay } = of_value(table, Path::new(""))?;
    let longest = max_delay.unwrap_or(first.max(Duration::from_secs(60 * 86_400)));
    let rule = ends.rule(first, longest).map(|(on, delays)| Backoff { on, after, delays });
    rule.map_err(|what| fault(table, what))
}

impl Ends {
    fn rule(self, first: Duration, longest: Duration) -> Result<(CountedEnds, Delays), String> {
        if first > longest {
            return Err("first is longer than max_delay".to_owned());
        }
        let on = match <[CountedEnds; 1]>::try_from(self.on) {
            Ok([one]) => one,
            Err(all) if all.len() <= CODES_MAX && all.iter().all(|ends| ends.is_listed) => {
                CountedEnds::listed(all.into_iter().flat_map(|ends| ends.codes).collect())
            }
            Err(_) => {
                return Err(format!("on is one word, or a list of up to {CODES_MAX} exit codes"));
            }
        };
        Ok((on, Delays::new(first, self.factor, longest)))
    }
}

fn parse_end(text: &str) -> Result<CountedEnds, &'static str> {
    match text {
        "failed" => Ok(CountedEnds::failed()),
        "failure" => Ok(CountedEnds::failure()),
        "timeout" => Ok(CountedEnds::timeout()),
        code => match code.parse() {
            Ok(0) | Err(_) => Err(
                "on is \"failed\" (any exit code but 0), \"failure\" (any but 0 and 124), \"timeout\" (124), or a list of exit codes but 0: [1, 75]",
            ),
            Ok(code) => Ok(CountedEnds::listed(vec![code])),
        },
    }
}

fn parse_after(text: &str) -> Result<NonZeroU32, String> {
    let after = text.parse().ok().filter(|after: &NonZeroU32| after.get() <= FAILURES_MAX);
    after.ok_or_else(|| format!("{text} is not in 1..={FAILURES_MAX}"))
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().unwrap_or(f64::NAN);
    let wrong = || format!("factor is a number from 1 to {DELAY_FACTOR_MAX}");
    (1.0..=DELAY_FACTOR_MAX).contains(&factor).then_some(factor).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::table;

    /// The rule of a text, by the reader of its table.
    fn rule<T>(text: &str, read: fn(&Value<'_>) -> Result<T, Fault>) -> Result<T, String> {
        table(text, read).map_err(|fault| fault.what)
    }

    #[test]
    fn tables_say_when_and_for_how_long() {
        let days = |days: &[i64]| days.iter().map(|days| days * 86_400).collect::<Vec<_>>();
        let usual = rule("", backoff).unwrap();
        assert_eq!((usual.on, usual.after.get()), (CountedEnds::failed(), 3));
        assert_eq!(usual.delays.seconds, days(&[1, 2, 4, 8, 16, 32, 60]));
        let text = "on = [1, 75]\nafter = 1\nfirst = '2days'\nfactor = 3\nmax_delay = '9days'";
        let said = rule(text, backoff).unwrap();
        assert_eq!((said.on, said.after.get()), (CountedEnds::listed(vec![1, 75]), 1));
        assert_eq!(said.delays.seconds, days(&[2, 6, 9]));
        let usual = retries_of_single_tasks().unwrap();
        assert_eq!((usual.most, usual.delays.seconds[..3].to_vec()), (3, vec![60, 120, 240]));
        let said = rule("retries = 2\nfirst = '1s'\nmax_delay = '3s'", retries).unwrap();
        assert_eq!((said.most, said.delays.seconds), (2, vec![1, 2, 3]));
        for (word, ends) in [
            ("failed", CountedEnds::failed()),
            ("failure", CountedEnds::failure()),
            ("timeout", CountedEnds::timeout()),
        ] {
            assert_eq!(rule(&format!("on = '{word}'"), retries).unwrap().on, ends);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (wrong, word) in [
            ("after = 0", "1..=1000"),
            ("after = 1001", "1..=1000"),
            ("factor = 0.5", "factor"),
            ("factor = 'twice'", "factor"),
            ("first = '0s'", "from \"1s\""),
            ("first = 86400", "in quotes"),
            ("first = '9days'\nmax_delay = '8days'", "first is longer"),
            ("on = 'success'", "on is"),
            ("on = []", "one at least"),
            ("on = [0, 1]", "exit codes"),
            ("on = ['failed', 1]", "one word"),
            ("often = 3", "no key \"often\""),
        ] {
            let said = rule(wrong, backoff).unwrap_err();
            assert!(said.contains(word), "{wrong}: {said}");
        }
        assert!(rule("retries = 1001", retries).unwrap_err().contains("0..=1000"));
    }
}
