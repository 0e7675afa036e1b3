//! Options of a command that a configuration file may say, too. A key of the file is an option's name, and its value is read as the
//! flag's, so the definition of the command line is the only one. A flag wins over the environment, and that over the file.
//!
//! `serve` and `relay` have their arguments as [`Configured`] options; `check --config` reads what a file says by itself.

use std::error::Error;
use std::ffi::OsString;
use std::marker::PhantomData;
use std::panic::UnwindSafe;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint, value_parser};
use shiftboss_protocol::url::Url;
use toml::de::{DeTable, DeValue};

use super::values::check_path;
use super::{line_of, not_toml, unknown};
use crate::exit::Failure;

/// The option that names the file.
const FILE: &str = "config";

/// Options of a command, all of which may be left out.
pub trait Options: Args + Default {
    /// What a file has beside them.
    const TABLES: &'static [&'static str] = &[];

    /// Takes these from a file with this text, and looks whether all that it says goes together. What is wrong has its line.
    fn take_tables(&mut self, _text: &str, _directory: &Path) -> Result<(), (usize, String)> {
        Ok(())
    }
}

/// Options as they were typed or are in the environment, and the file that may say more.
#[derive(Debug, Clone)]
pub struct Configured<T> {
    pub file: Option<PathBuf>,
    typed: ArgMatches,
    options: PhantomData<T>,
}

/// Nothing in it ever changes, so a panic leaves nothing half done.
impl<T> UnwindSafe for Configured<T> {}

impl<T: Options> Configured<T> {
    /// Without what the file says.
    pub fn typed(&self) -> Result<T, Failure> {
        self.over(T::default())
    }

    /// And behind them what the file says.
    pub fn over(&self, mut said: T) -> Result<T, Failure> {
        let updated = said.update_from_arg_matches(&self.typed);
        updated.map_err(|error| Failure::usage(why(&error)))?;
        Ok(said)
    }
}

impl<T> FromArgMatches for Configured<T> {
    fn from_arg_matches(typed: &ArgMatches) -> Result<Self, clap::Error> {
        let file = typed.get_one::<PathBuf>(FILE).cloned();
        Ok(Self { file, typed: typed.clone(), options: PhantomData })
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
        T::augment_args(command.arg(file.help(help)))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// What the text of a file in a directory says. What is wrong has its line.
pub fn of_text<T: Options>(text: &str, directory: &Path) -> Result<T, (usize, String)> {
    let table = DeTable::parse(text).map_err(|error| not_toml(text, &error))?;
    // Every option is a flag here, by its name, and the environment says nothing.
    let command = T::augment_args(Command::new(FILE)).no_binary_name(true);
    let mut command = command.disable_help_flag(true).mut_args(|arg| {
        let name = arg.get_id().clone();
        arg.long(name).env(None::<&str>)
    });
    let mut options = T::default();
    let mut keys: Vec<_> = table.get_ref().iter().collect();
    keys.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in keys {
        let (name, line) = (&**key.get_ref(), line_of(text.as_bytes(), key.span().start));
        if !T::TABLES.contains(&name) {
            let written = text.lines().nth(line - 1).unwrap_or_default();
            let flags = flags::<T>(&command, (name, written), value.get_ref(), directory);
            let matches = flags.and_then(|flags| {
                command.try_get_matches_from_mut(flags).map_err(|error| why(&error))
            });
            let matches = matches.map_err(|what| (line, what))?;
            options.update_from_arg_matches(&matches).map_err(|error| (line, why(&error)))?;
        }
    }
    options.take_tables(text, directory)?;
    Ok(options)
}

/// A key's value as flags.
fn flags<T: Options>(
    command: &Command,
    (key, written): (&str, &str),
    value: &DeValue<'_>,
    directory: &Path,
) -> Result<Vec<OsString>, String> {
    let Some(option) = command.get_arguments().find(|option| *option.get_id() == *key) else {
        let options = command.get_arguments().map(|option| option.get_id().as_str());
        let known: Vec<&str> = options.chain(T::TABLES.iter().copied()).collect();
        return Err(unknown("key", key, &known, written));
    };
    match value {
        DeValue::Array(values) if matches!(option.get_action(), ArgAction::Append) => {
            values.iter().map(|value| flag(option, value.get_ref(), directory)).collect()
        }
        value => Ok(vec![flag(option, value, directory)?]),
    }
}

fn flag(option: &Arg, value: &DeValue<'_>, directory: &Path) -> Result<OsString, String> {
    let text = match value {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(is_so) => is_so.to_string(),
        DeValue::Array(_) => return Err("one value is needed here, not a list".to_owned()),
        DeValue::Table(_) => return Err("one value is needed here, not a table".to_owned()),
        DeValue::Datetime(_) => return Err("write this in quotes".to_owned()),
    };
    let mut flag = OsString::from(format!("--{}=", option.get_id()));
    match option.get_value_hint() {
        // One of a file may be a URL as well.
        ValueHint::FilePath if Url::new(text.as_str()).has_scheme() => flag.push(text),
        ValueHint::AnyPath | ValueHint::FilePath => {
            check_path(text.as_ref(), "name a path, or leave the key out")?;
            flag.push(directory.join(text));
        }
        _ => flag.push(text),
    }
    Ok(flag)
}

/// What is wrong with a value, by the option's own parser.
fn why(error: &clap::Error) -> String {
    let value = |kind| error.get(kind);
    match (value(ContextKind::InvalidValue), value(ContextKind::ValidValue)) {
        (Some(ContextValue::String(wrong)), Some(ContextValue::Strings(known))) => {
            let known: Vec<&str> = known.iter().map(String::as_str).collect();
            unknown("value", wrong, &known, "")
        }
        _ => error.source().map_or_else(|| error.kind().to_string(), ToString::to_string),
    }
}
