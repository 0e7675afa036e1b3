//! What the libraries say of a faulty file, in the words of who wrote it: "expected a sequence" tells a programmer
//! of types. Pure; what is not known here is passed on as it is.

use crate::near::did_you_mean;

/// What a message means, for somebody who sees `line` in the file.
pub fn plain(message: &str, line: &str) -> String {
    let is_table = line.starts_with('[') && !line.starts_with("[[");
    if let Some(rest) = message.strip_prefix("unknown field `") {
        return unknown("key", rest, line);
    }
    if let Some(rest) = message.strip_prefix("unknown variant `") {
        return unknown("value", rest, "");
    }
    if let Some(name) = quoted(message, "missing field `") {
        return format!("the key {name:?} is missing");
    }
    match (message, message.split_once(", expected ")) {
        ("invalid type: map, expected a sequence", _) if is_table => {
            let name = line.trim_matches(['[', ']', ' ']);
            format!("write [[{name}]], in double brackets: there may be several")
        }
        ("invalid type: map, expected a sequence", _) if line.starts_with("fetcher.") => {
            "write [[fetcher]], in double brackets, and its keys below: there may be several"
                .to_owned()
        }
        ("duplicate key", _) => "this key is there twice".to_owned(),
        ("wanted string or table", _) => format!("{TEXT} is needed here"),
        (_, Some((found, wanted))) => expected(found, wanted, message),
        _ => message.to_owned(),
    }
}

const TEXT: &str = "a text in quotes, as in \"text\",";

/// `a`, expected one of `b`, `c`. Where `line` has a dotted key, its last part may be meant.
fn unknown(what: &str, rest: &str, line: &str) -> String {
    let (name, known) = rest.split_once('`').unwrap_or((rest, ""));
    let known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
    let dotted = line.split('=').next().and_then(|key| key.trim().rsplit_once('.'));
    let words = [Some(name), dotted.map(|(_, last)| last)].into_iter().flatten();
    let mut hints = words.map(|word| did_you_mean(word, known.iter().copied()));
    match hints.find(|hint| !hint.is_empty()).unwrap_or_default() {
        hint if hint.is_empty() => {
            format!("there is no {what} {name:?} here; there are: {}", known.join(", "))
        }
        hint => format!("there is no {what} {name:?} here{hint}"),
    }
}

fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    message.strip_prefix(before)?.strip_suffix('`')
}

/// What stands there, and what is to.
fn expected(found: &str, wanted: &str, message: &str) -> String {
    let needed = match wanted {
        "a string" | "path string" | "literal string" => TEXT,
        "a boolean" | "`true`" | "`false`" => "true or false, without quotes,",
        "u64" => "a whole number from 0 on, without quotes,",
        "a nonzero u32" => "a whole number from 1 to 4294967295, without quotes,",
        "f64" => "a number such as 0.5, without quotes,",
        "a sequence" => "a list in brackets, as in [\"text\"],",
        "a map" => "a table in braces, as in { NAME = \"text\" },",
        "`=`" => return "a line is KEY = VALUE, or the head of a table in brackets".to_owned(),
        _ => return message.to_owned(),
    };
    let kinds = ["invalid type: ", "invalid value: "];
    let found = kinds.iter().find_map(|kind| found.strip_prefix(kind)).map(value);
    found.map_or(format!("{needed} is needed here"), |found| {
        format!("{needed} is needed here, not {found}")
    })
}

/// A value as it was written: the library puts its type before it.
fn value(found: &str) -> &str {
    match found {
        "map" => "a table",
        "sequence" => "a list",
        _ => found.find(['`', '"']).map_or(found, |begin| {
            let value = &found[begin..];
            value.strip_prefix('`').and_then(|value| value.split('`').next()).unwrap_or(value)
        }),
    }
}
