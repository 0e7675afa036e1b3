//! `[[group]]` in the configuration file: what keys have in common, and the limits that hold for each group. They become
//! the queue's [`GroupRules`].

use std::collections::HashSet;
use std::path::Path;

use clap::{Args, value_parser};
use shiftboss_queue::groups::{
    By, DELAY_MAX, EXCEPTIONS_MAX, GroupRules, IN_FLIGHT_MAX, Limits, RATE_MAX, REST_FACTOR_MAX,
    REST_MAX, Rate, Rest, TABLE_NAME_MAX_BYTES, TABLES_MAX, Table, WINDOW_MAX, WORD_MAX, regex,
};
use shiftboss_queue::record::Millis;
use toml::de::DeValue;

use super::Fault;
use super::keys::{Keys, Value, fault, of_value, several};
use super::values::parse_time;

/// The keys of a `[[group]]`.
#[derive(Debug, Args)]
pub struct GroupKeys {
    /// What groups of this kind are called: `host` for `host:example.org`; a word
    #[arg(required = true, value_parser = parse_name)]
    name: String,
    /// Which keys it is for: what this regular expression finds something in; all if it is left out
    #[arg(value_parser = parse_regex)]
    keys: Option<String>,
    #[command(flatten)]
    limits: LimitKeys,
    #[arg(skip)]
    by: Option<By>,
    /// Other limits for some groups.
    #[arg(skip)]
    limit: Vec<(String, Limits)>,
}

/// The keys of a `[[group.limit]]`.
#[derive(Debug, Args)]
struct ExceptionKeys {
    #[arg(id = "match", required = true, value_parser = parse_pattern)]
    pattern: String,
    #[command(flatten)]
    limits: LimitKeys,
}

#[derive(Debug, Clone, Copy, Args)]
struct LimitKeys {
    /// How many of a group's jobs may be out at a time, 1 to 1000
    #[arg(value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(IN_FLIGHT_MAX)))]
    max_in_flight: Option<u32>,
    /// From the start of a job to that of the next, from `1ms` to `7days`
    #[arg(value_parser = parse_delay)]
    delay: Option<Millis>,
    /// How long a group rests after a job: as long as that took, times this, up to 1000
    #[arg(value_name = "N", value_parser = parse_factor)]
    rest_factor: Option<f64>,
    /// But for no less than this, from `1ms` to `7days`; needs `rest_factor` [default: 0s]
    #[arg(value_parser = parse_delay)]
    rest_min: Option<Millis>,
    /// And for no longer than this; needs `rest_factor`, too [default: 1h]
    #[arg(value_parser = parse_delay)]
    rest_max: Option<Millis>,
    /// How many jobs may start in any such time: `"100/1h"`; up to 1000000, in up to `31days`
    #[arg(value_parser = parse_rate)]
    rate: Option<Rate>,
    /// The longest pause or delay that commands may ask for, from `1ms` to `7days` [default: 1day]
    #[arg(value_parser = parse_delay)]
    asked_max: Option<Millis>,
}

impl LimitKeys {
    /// These, and where one is left out that of the group.
    fn or(self, group: Self) -> Self {
        Self {
            max_in_flight: self.max_in_flight.or(group.max_in_flight),
            delay: self.delay.or(group.delay),
            rest_factor: self.rest_factor.or(group.rest_factor),
            rest_min: self.rest_min.or(group.rest_min),
            rest_max: self.rest_max.or(group.rest_max),
            rate: self.rate.or(group.rate),
            asked_max: self.asked_max.or(group.asked_max),
        }
    }

    fn limits(self) -> Result<Limits, &'static str> {
        let Self { max_in_flight, delay, rest_factor, rest_min, rest_max, rate, asked_max } = self;
        if rest_factor.is_none() && (rest_min.is_some() || rest_max.is_some()) {
            return Err("rest_min and rest_max are bounds of a rest: give rest_factor, too");
        }
        let min = rest_min.unwrap_or(0);
        let max = rest_max.unwrap_or(REST_MAX.max(min));
        if min > max {
            return Err("rest_min is longer than rest_max");
        }
        let rest = rest_factor.map(|factor| Rest { factor, min, max });
        Ok(Limits { max_in_flight, delay, rest, rate, asked_max })
    }
}

impl Keys for ExceptionKeys {}

impl Keys for GroupKeys {
    const TABLES: &'static [&'static str] = &["by", "limit"];

    fn take(&mut self, name: &str, value: &Value<'_>, directory: &Path) -> Result<(), Fault> {
        match name {
            "by" => self.by = Some(by(value)?),
            _ => self.limit = exceptions(value, self.limits, directory)?,
        }
        Ok(())
    }

    fn finish(&mut self, _directory: &Path) -> Result<(), String> {
        self.by.as_ref().ok_or_else(|| format!("the key \"by\" is missing: {BY}"))?;
        self.limits.limits()?;
        Ok(())
    }
}

/// All tables of a file, in its order.
pub fn groups(value: &Value<'_>, directory: &Path) -> Result<GroupRules, Fault> {
    let mut names = HashSet::new();
    let one = |value: &Value<'_>| {
        let GroupKeys { name, keys, limits, by, limit } = of_value(value, directory)?;
        if !names.insert(name.clone()) {
            let what = format!("there is a group {name:?} already: give each a name of its own");
            return Err(fault(value, what));
        }
        let limits = limits.limits().map_err(|what| fault(value, what))?;
        let by = by.unwrap_or(By::Host);
        Ok(Table { name, by, keys, limits, exceptions: limit })
    };
    let tables = several(value, "group", TABLES_MAX)?.iter().map(one).collect::<Result<_, _>>()?;
    GroupRules::new(tables).map_err(|what| fault(value, what))
}

fn exceptions(
    value: &Value<'_>,
    group: LimitKeys,
    directory: &Path,
) -> Result<Vec<(String, Limits)>, Fault> {
    let mut patterns = HashSet::new();
    let one = |value: &Value<'_>| {
        let ExceptionKeys { pattern, limits } = of_value(value, directory)?;
        if !patterns.insert(pattern.clone()) {
            return Err(fault(value, format!("there is a limit for {pattern:?} already")));
        }
        let limits = limits.or(group).limits().map_err(|what| fault(value, what))?;
        Ok((pattern, limits))
    };
    several(value, "group.limit", EXCEPTIONS_MAX)?.iter().map(one).collect()
}

const BY: &str =
    "by is \"host\", {prefix = \"/\"}, {regex = '^(\\w+)\\.'}, {word = 2} or {field = \"host=\"}";

fn by(value: &Value<'_>) -> Result<By, Fault> {
    let wrong = || fault(value, BY);
    if value.get_ref().as_str() == Some("host") {
        return Ok(By::Host);
    }
    let table = value.get_ref().as_table().filter(|table| table.len() == 1).ok_or_else(wrong)?;
    let (key, said) = table.iter().next().ok_or_else(wrong)?;
    let by = match (&**key.get_ref(), said.get_ref()) {
        ("word", DeValue::Integer(number)) => {
            let number = number.to_string().parse().ok().filter(|it| (1..=WORD_MAX).contains(it));
            let what = format!("word is a number from 1, which is the key, to {WORD_MAX}");
            By::Word(number.ok_or_else(|| fault(said, what))?)
        }
        (_, DeValue::String(text)) if text.is_empty() => return Err(wrong()),
        ("prefix", DeValue::String(text)) => By::Prefix(text.to_string()),
        ("field", DeValue::String(text)) => By::Field(text.to_string()),
        ("regex", DeValue::String(text)) => {
            By::Regex(parse_regex(text).map_err(|what| fault(said, what))?)
        }
        _ => return Err(wrong()),
    };
    Ok(by)
}

fn parse_name(text: &str) -> Result<String, String> {
    let is_word = !text.is_empty() && !text.contains([':', '*']);
    let is_shown = !text.contains(|it: char| it.is_whitespace() || it.is_control());
    let is_right = is_word && is_shown && text.len() <= TABLE_NAME_MAX_BYTES;
    let wrong = || format!("a name has 1 to {TABLE_NAME_MAX_BYTES} bytes, and no space, : or *");
    is_right.then(|| text.to_owned()).ok_or_else(wrong)
}

fn parse_pattern(text: &str) -> Result<String, &'static str> {
    let is_right = !text.is_empty() && !text.contains(char::is_control);
    let wrong = "match is a group without its kind, as in \"*.example.org\"";
    is_right.then(|| text.to_owned()).ok_or(wrong)
}

fn parse_regex(text: &str) -> Result<String, String> {
    regex(text).map(|_| text.to_owned())
}

fn parse_delay(text: &str) -> Result<Millis, String> {
    up_to(text, DELAY_MAX).ok_or_else(|| format!("{text:?}: give a time from \"1ms\" to \"7days\""))
}

fn parse_rate(text: &str) -> Result<Rate, String> {
    let rate = text.split_once('/').and_then(|(starts, window)| {
        let starts = starts.trim().parse().ok().filter(|it| (1..=RATE_MAX).contains(it))?;
        Some(Rate { starts, window: up_to(window.trim(), WINDOW_MAX)? })
    });
    let wrong =
        || format!("{text:?}: give a rate as in \"100/1h\", up to {RATE_MAX} in \"31days\"");
    rate.ok_or_else(wrong)
}

fn up_to(text: &str, most: Millis) -> Option<Millis> {
    let time = Millis::try_from(parse_time(text).ok()?.as_millis()).ok()?;
    (1..=most).contains(&time).then_some(time)
}

fn parse_factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().unwrap_or(f64::NAN);
    let is_right = factor > 0.0 && factor <= REST_FACTOR_MAX;
    is_right
        .then_some(factor)
        .ok_or_else(|| format!("give a number above 0, up to {REST_FACTOR_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::table;

    fn read(text: &str) -> Result<GroupRules, (usize, String)> {
        let line = |fault: Fault| (text[..fault.place.start].matches('\n').count() + 1, fault.what);
        table(text, |value| {
            groups(value.get_ref().as_table().unwrap().get("group").unwrap(), Path::new(""))
        })
        .map_err(line)
    }

    #[test]
    fn tables_say_what_groups_may() {
        let text = "
            [[group]]
            name = 'host'
            by = 'host'
            keys = '^https?://'
            max_in_flight = 1
            delay = '1500ms'
            rest_factor = 5
            rest_min = '1s'
            rate = '100 / 1h'
            asked_max = '2h'
            [[group.limit]]
            match = '*.example.org'
            delay = '30s'
            rest_max = '2s'
            [[group]]
            name = 'word'
            by = { word = 2 }
        ";
        let rules = read(text).unwrap();
        let rest = Rest { factor: 5.0, min: 1_000, max: REST_MAX };
        let whole = Limits {
            max_in_flight: Some(1),
            delay: Some(1_500),
            rest: Some(rest),
            rate: Some(Rate { starts: 100, window: 3_600_000 }),
            asked_max: Some(7_200_000),
        };
        assert_eq!(rules.limits("host:a.org"), whole);
        let rest = Some(Rest { max: 2_000, ..rest });
        let other = Limits { delay: Some(30_000), rest, ..whole };
        assert_eq!(rules.limits("host:a.example.org"), other);
        assert_eq!(rules.limits("word:a"), Limits::default());
        let [host, word] = &rules.tables().collect::<Vec<_>>()[..] else { panic!("{rules:?}") };
        assert_eq!((&host.by, host.keys.as_deref()), (&By::Host, Some("^https?://")));
        assert_eq!((&word.by, &word.keys), (&By::Word(2), &None));
        for (by, right) in [
            ("{prefix = '/'}", By::Prefix("/".into())),
            ("{regex = '^(a)'}", By::Regex("^(a)".into())),
            ("{field = 'host='}", By::Field("host=".into())),
        ] {
            let rules = read(&format!("[[group]]\nname = 'g'\nby = {by}")).unwrap();
            assert_eq!(rules.tables().next().unwrap().by, right);
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let with = |line: &str| format!("[[group]]\nname = 'a'\nby = 'host'\n{line}");
        for (text, line, word) in [
            ("group = 3", 1, "[[group]], in double brackets"),
            ("[[group]]\nby = 'host'", 1, "\"name\" is missing"),
            ("[[group]]\nname = 'a'", 1, "\"by\" is missing"),
            ("[[group]]\nname = 'a:b'\nby = 'host'", 2, "no space, :"),
            ("[[group]]\nname = 'a'\nby = 'hosts'", 3, "by is \"host\""),
            ("[[group]]\nname = 'a'\nby = {}", 3, "by is \"host\""),
            ("[[group]]\nname = 'a'\nby = {word = 0}", 3, "a number from 1"),
            ("[[group]]\nname = 'a'\nby = {prefix = ''}", 3, "by is \"host\""),
            ("[[group]]\nname = 'a'\nby = {regex = '('}", 3, "no regular expression"),
            (&with("keys = '['"), 4, "no regular expression"),
            (&with("max_in_flight = 0"), 4, "1..=1000"),
            (&with("max_in_flight = -1"), 4, "1..=1000"),
            (&with("delay = '0s'"), 4, "from \"1ms\""),
            (&with("delay = '-5s'"), 4, "from \"1ms\""),
            (&with("delay = '8days'"), 4, "to \"7days\""),
            (&with("delay = 5"), 4, "in quotes"),
            (&with("rest_factor = 0"), 4, "above 0"),
            (&with("rest_min = '1s'"), 1, "rest_factor, too"),
            (&with("rest_factor = 2\nrest_min = '9s'\nrest_max = '8s'"), 1, "longer than rest_max"),
            (&with("rate = '0/1h'"), 4, "100/1h"),
            (&with("rate = '5'"), 4, "100/1h"),
            (&with("rate = '5/32days'"), 4, "31days"),
            (&with("dealy = '1s'"), 4, "did you mean \"delay\"?"),
            (&with("[[group]]\nname = 'a'\nby = 'host'"), 4, "already"),
            (&with("limit = {}"), 4, "[[group.limit]], in double brackets"),
            (&with("[[group.limit]]\ndelay = '1s'"), 4, "\"match\" is missing"),
            (&with("[[group.limit]]\nmatch = ''"), 5, "*.example.org"),
            (&with("[[group.limit]]\nmatch = 'x'\n[[group.limit]]\nmatch = 'x'"), 6, "already"),
        ] {
            let (found, what) = read(text).unwrap_err();
            assert!(found == line && what.contains(word), "{text}\n{found}: {what}");
        }
    }

    #[test]
    fn there_are_not_too_many() {
        let table = |at| format!("[[group]]\nname = 'g{at}'\nby = 'host'\n");
        let file = |count| (0..count).map(table).collect::<String>();
        assert_eq!(read(&file(TABLES_MAX)).unwrap().tables().count(), TABLES_MAX);
        assert!(read(&file(TABLES_MAX + 1)).unwrap_err().1.contains("more than 100"));
    }
}
