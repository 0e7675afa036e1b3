//! Options that a configuration file may have, too. A key of the file is an option's name, and its value is parsed like
//! the flag's, so the command line's definition is the only one: of a key's name, parser, default and help. A flag wins
//! over the environment, and that over the file.
//!
//! `serve` and `relay` have their arguments as [`Configured`] options. The keys of the file's tables are options of no command.

use std::collections::BTreeMap;
use std::error::Error;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::ops::Range;
use std::panic::UnwindSafe;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};
use shiftboss_protocol::url::Url;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::values::check_path;
use super::{Fault, File, not_toml};
use crate::exit::Failure;
use crate::near::did_you_mean;

/// The option that names the file.
const FILE: &str = "config";
/// Values of options that are numbers, in a file without quotes.
const NUMBERS: [&str; 2] = ["N", "SHARE"];

/// A value in a file, and where it stands.
pub type Value<'a> = Spanned<DeValue<'a>>;
/// The written values of options, by their names.
pub type Written = BTreeMap<String, Vec<OsString>>;

/// Options that a file, or a table in it, may have.
pub trait Keys: Args {
    /// Tables that a file may have besides them, without flags.
    const TABLES: &'static [&'static str] = &[];
    /// If a source of higher precedence has any of these, it replaces all of them.
    const TOGETHER: &'static [&'static str] = &[];

    /// Takes one of the tables.
    fn take(&mut self, _name: &str, _value: &Value<'_>, _directory: &Path) -> Result<(), Fault> {
        Ok(())
    }

    /// All is there: makes it whole, and looks whether it goes together.
    fn finish(&mut self, _directory: &Path) -> Result<(), String> {
        Ok(())
    }
}

/// Options from the command line or the environment, and the file that may have more.
#[derive(Debug, Clone)]
pub struct Configured<T> {
    pub file: Option<PathBuf>,
    written: Written,
    options: PhantomData<T>,
}

/// Nothing in it ever changes, so a panic leaves nothing half done.
impl<T> UnwindSafe for Configured<T> {}

impl<T: Keys> Configured<T> {
    /// The options without the file.
    pub fn typed(&self) -> Result<(T, Said), Failure> {
        of_table(&DeTable::new(), 0..0, Path::new(""), &self.written)
            .map_err(|fault| Failure::usage(fault.what))
    }

    /// The options, with the file's values after them, if one is named.
    pub fn behind(&self, file: Option<&File>) -> Result<(T, Said), Failure> {
        file.map_or_else(|| self.typed(), |file| file.behind(&self.written))
    }

    pub fn read_file(&self) -> Result<Option<File>, Failure> {
        self.file.as_deref().map(File::read).transpose()
    }
}

impl<T: Args> FromArgMatches for Configured<T> {
    fn from_arg_matches(typed: &ArgMatches) -> Result<Self, clap::Error> {
        let file = typed.get_one(FILE).cloned();
        let Said(all) = said(&T::augment_args(Command::new(FILE)), typed);
        let written = all
            .into_iter()
            .filter_map(|(name, (values, is_said))| is_said.then_some((name, values)));
        let written = written.collect();
        Ok(Self { file, written, options: PhantomData })
    }

    fn update_from_arg_matches(&mut self, typed: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(typed)?;
        Ok(())
    }
}

impl<T: Args> Args for Configured<T> {
    fn augment_args(command: Command) -> Command {
        let file = Arg::new(FILE).long(FILE).value_name("FILE").env("SHIFTBOSS_CONFIG");
        let file = file.value_parser(value_parser!(PathBuf));
        let help = "The configuration file; paths in it are relative to its directory";
        T::augment_args(command.arg(file.help(help))).mut_args(switch)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// A switch that can be turned off, too: where the file turns it on.
fn switch(arg: Arg) -> Arg {
    if !matches!(arg.get_action(), ArgAction::SetTrue) {
        return arg;
    }
    let arg = arg.action(ArgAction::Set).num_args(0..=1).require_equals(true).value_name("BOOL");
    arg.default_value("false").default_missing_value("true").hide_default_value(true)
}

/// The values of options: as written, or their defaults.
#[derive(Debug, Clone)]
pub struct Said(BTreeMap<String, (Vec<OsString>, bool)>);

impl Said {
    /// Whether this was written somewhere.
    pub fn has(&self, option: &str) -> bool {
        self.0.get(option).is_some_and(|(_, is_said)| *is_said)
    }

    /// Options that have something else than in `other`.
    pub fn differences(&self, other: &Self) -> Vec<String> {
        let differ = |(name, (values, _)): (&String, &(Vec<_>, _))| {
            let others = other.0.get(name).map(|(values, _)| values);
            (others != Some(values)).then(|| name.clone())
        };
        self.0.iter().filter_map(differ).collect()
    }
}

fn said(definition: &Command, matches: &ArgMatches) -> Said {
    let one = |name: &str| {
        let values = matches.get_raw(name).into_iter().flatten().map(OsString::from).collect();
        let source = matches.value_source(name);
        let is_said = source.is_some_and(|source| source != ValueSource::DefaultValue);
        (name.to_owned(), (values, is_said))
    };
    Said(definition.get_arguments().map(|option| one(option.get_id().as_str())).collect())
}

/// The values in a text, after those that are already written.
pub fn of_text<T: Keys>(
    text: &str,
    directory: &Path,
    written: &Written,
) -> Result<(T, Said), Fault> {
    let table = DeTable::parse(text).map_err(|error| not_toml(&error))?;
    // An error of the whole file is located at its first line.
    of_table(table.get_ref(), 0..0, directory, written)
}

/// The keys of a table, as options that are written nowhere else.
pub fn of_value<T: Keys>(value: &Value<'_>, directory: &Path) -> Result<T, Fault> {
    let table = value.get_ref().as_table().ok_or_else(|| fault(value, "a table is needed here"))?;
    Ok(of_table(table, value.span(), directory, &Written::new())?.0)
}

/// The options of a file or of one of its tables: each is a flag of its name, without the environment.
pub fn definition<T: Args>() -> Command {
    let command = T::augment_args(Command::new(FILE)).no_binary_name(true).disable_help_flag(true);
    command.mut_args(|arg| {
        let name = arg.get_id().clone();
        let takes_one = !matches!(arg.get_action(), ArgAction::SetTrue);
        let arg = switch(arg.long(name).env(None::<&str>).last(false));
        if takes_one { arg.num_args(1).require_equals(true) } else { arg }
    })
}

fn of_table<T: Keys>(
    table: &DeTable<'_>,
    place: Range<usize>,
    directory: &Path,
    nearer: &Written,
) -> Result<(T, Said), Fault> {
    let mut definition = definition::<T>();
    let (mut written, mut tables) = (Written::new(), Vec::new());
    let mut keys: Vec<_> = table.iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in &keys {
        let name = &**key.get_ref();
        if T::TABLES.contains(&name) {
            tables.push((name, *value));
            continue;
        }
        let wrong = |what| Fault { place: key.span(), what };
        let option = definition.get_arguments().find(|option| *option.get_id() == *name);
        let option = option.ok_or_else(|| wrong(no_key::<T>(name, &definition)))?;
        let values = values(option, value.get_ref(), directory);
        let values = values.map_err(|what| wrong(format!("{name}: {what}")))?;
        written.insert(name.to_owned(), values);
    }
    // The place is known of a key that is wrong by itself.
    let wrong = |what: String| {
        let found = keys
            .iter()
            .find_map(|(key, _)| Some((key.span(), wrong_alone::<T>(&written, key.get_ref())?)));
        let (place, what) = found.unwrap_or_else(|| (place.clone(), what));
        Fault { place, what }
    };
    let is_missing = |option: &&Arg| {
        let there = written.get(option.get_id().as_str());
        option.is_required_set() && there.is_none_or(Vec::is_empty)
    };
    if let Some(option) = definition.get_arguments().find(is_missing) {
        let name = option.get_id().as_str();
        return Err(wrong(format!("the key {name:?} is missing, or has nothing in it")));
    }
    let read = definition.try_get_matches_from_mut(flags(&written));
    let mut matches = read.map_err(|error| wrong(why(&error)))?;
    let wrong = |what: String| Fault { place: place.clone(), what };
    if !nearer.is_empty() {
        if T::TOGETHER.iter().any(|name| nearer.contains_key(*name)) {
            written.retain(|name, _| !T::TOGETHER.contains(&&**name));
        }
        written.extend(nearer.clone());
        let all = definition.try_get_matches_from_mut(flags(&written));
        matches = all.map_err(|error| wrong(why(&error)))?;
    }
    let mut options = T::from_arg_matches(&matches).map_err(|error| wrong(why(&error)))?;
    for (name, value) in tables {
        options.take(name, value, directory)?;
    }
    options.finish(directory).map_err(wrong)?;
    Ok((options, said(&definition, &matches)))
}

/// What is wrong with a key by itself.
fn wrong_alone<T: Args>(written: &Written, key: &str) -> Option<String> {
    let one = Written::from([(key.to_owned(), written.get(key)?.clone())]);
    let alone = definition::<T>().mut_args(|arg| arg.required(false));
    let read = alone.try_get_matches_from(flags(&one));
    read.err().map(|error| format!("{key}: {}", why(&error)))
}

fn flags(written: &Written) -> impl Iterator<Item = OsString> {
    let flag = |name: &str, value: &OsString| {
        let mut flag = OsString::from(format!("--{name}="));
        flag.push(value);
        flag
    };
    written.iter().flat_map(move |(name, values)| values.iter().map(move |value| flag(name, value)))
}

/// The values of a key, as a flag has them.
fn values(option: &Arg, value: &DeValue<'_>, directory: &Path) -> Result<Vec<OsString>, String> {
    let is_list = matches!(option.get_action(), ArgAction::Append);
    match value {
        DeValue::Array(values) if values.is_empty() && !option.get_default_values().is_empty() => {
            Err("name one at least, or leave the key out".to_owned())
        }
        DeValue::Array(values) if is_list => {
            values.iter().map(|value| one(option, value.get_ref(), directory)).collect()
        }
        _ if is_list && option.get_value_delimiter().is_none() => {
            Err("a list in brackets is needed here, as in [\"text\"]".to_owned())
        }
        value => Ok(vec![one(option, value, directory)?]),
    }
}

fn one(option: &Arg, value: &DeValue<'_>, directory: &Path) -> Result<OsString, String> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Boolean(is_so) => is_so.to_string(),
        DeValue::Integer(number) if is_number(option) => number.to_string(),
        DeValue::Float(number) if is_number(option) => number.to_string(),
        DeValue::Array(_) => return Err("one value is needed here, not a list".to_owned()),
        DeValue::Table(_) => return Err("one value is needed here, not a table".to_owned()),
        // An octal mode is not a TOML number, and a time has a unit.
        _ => return Err("write this in quotes".to_owned()),
    };
    match option.get_value_hint() {
        // One of a file may be a URL as well.
        ValueHint::FilePath if Url::new(text.as_str()).has_scheme() => Ok(text.into()),
        ValueHint::AnyPath | ValueHint::FilePath => {
            check_path(&text)?;
            // Without `.` in it.
            Ok(directory.join(text).components().collect::<PathBuf>().into())
        }
        _ => Ok(text.into()),
    }
}

/// Whether a file has the option's value without quotes.
pub fn is_number(option: &Arg) -> bool {
    let names = option.get_value_names().unwrap_or_default().iter();
    names.flat_map(|name| name.split('|')).any(|name| NUMBERS.contains(&name))
}

/// The tables of an array.
pub fn several<'a, 'v>(
    value: &'a Value<'v>,
    name: &str,
    most: usize,
) -> Result<&'a [Value<'v>], Fault> {
    let wrong = || {
        let what = "in double brackets, and its keys below: there may be several";
        fault(value, format!("write [[{name}]], {what}"))
    };
    let tables = value.get_ref().as_array().ok_or_else(wrong)?;
    let too_many = |table| fault(table, format!("there are more than {most} tables [[{name}]]"));
    tables.get(most).map_or(Ok(tables), |table| Err(too_many(table)))
}

pub fn fault(value: &Value<'_>, what: impl Into<String>) -> Fault {
    Fault { place: value.span(), what: what.into() }
}

fn no_key<T: Keys>(name: &str, definition: &Command) -> String {
    let options = definition.get_arguments().map(|option| option.get_id().as_str());
    unknown("key", name, &options.chain(T::TABLES.iter().copied()).collect::<Vec<_>>())
}

/// The name that was probably meant, or those that are possible.
fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    let hint = match did_you_mean(name, known.iter().copied()) {
        hint if hint.is_empty() => format!("; there are: {}", known.join(", ")),
        hint => hint,
    };
    format!("there is no {what} {name:?} here{hint}")
}

/// What is wrong with a value, by the option's own parser.
fn why(error: &clap::Error) -> String {
    let value = |kind| error.get(kind);
    match (value(ContextKind::InvalidValue), value(ContextKind::ValidValue)) {
        (Some(ContextValue::String(wrong)), Some(ContextValue::Strings(known))) => {
            unknown("value", wrong, &known.iter().map(String::as_str).collect::<Vec<_>>())
        }
        _ => error.source().map_or_else(|| error.kind().to_string(), ToString::to_string),
    }
}
