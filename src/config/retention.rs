//! `[retention]` in the configuration file: how long the queue keeps what nothing needs any more.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use super::Fault;
use super::keys::{Keys, Value, of_value};
use super::values::parse_time;

const DAY: Duration = Duration::from_secs(86_400);
const KEPT_MAX: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The keys of `[retention]`.
#[derive(Debug, Args)]
pub struct RetentionKeys {
    /// Forget a key that nothing lists so long after its last run, from `1day` to `100years`
    #[arg(value_parser = parse_kept)]
    unlisted_keys: Option<Duration>,
}

impl Keys for RetentionKeys {}

/// For how long keys are kept that nothing lists, by a table `retention`; `None`: for ever.
pub fn retention(table: &Value<'_>) -> Result<Option<Duration>, Fault> {
    let RetentionKeys { unlisted_keys } = of_value(table, Path::new(""))?;
    Ok(unlisted_keys)
}

fn parse_kept(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    let is_right = (DAY..=KEPT_MAX).contains(&time);
    is_right.then_some(time).ok_or_else(|| "give a time from \"1day\" to \"100years\"".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::table;

    #[test]
    fn what_is_kept_is_kept_a_day_at_least() {
        let days = |days: u64| Ok(Some(Duration::from_secs(days * 86_400)));
        let said = |text: &str| table(text, retention).map_err(|fault| fault.what);
        assert_eq!(said(""), Ok(None));
        assert_eq!(said("unlisted_keys = '1day'"), days(1));
        assert_eq!(said("unlisted_keys = '400days'"), days(400));
        for (wrong, word) in [
            ("unlisted_keys = '23h'", "from \"1day\""),
            ("unlisted_keys = '101years'", "to \"100years\""),
            ("unlisted_keys = 400", "in quotes"),
            ("unlisted_keys = 'long'", "is no time"),
            ("keys = '1day'", "no key \"keys\""),
        ] {
            let why = said(wrong).unwrap_err();
            assert!(why.contains(word), "{wrong}: {why}");
        }
    }
}
