//! Options of both programs' commands, as typed, and the settings made from them. The doc comments are the help texts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use shiftboss_runner::RunnerSettings;
use shiftboss_runner::child::{CommandSpec, GRACE, Template};
use shiftboss_runner::payload::PAYLOAD_FILE;

use crate::exit::{ExitCode, Failure};
use crate::near::one_slip_from;

/// How long a command may take, wherever one is run.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct TimeLimits {
    /// End COMMAND after so long (TERM, then KILL); that is a failure
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    pub timeout: Option<Duration>,
    /// How long COMMAND may take to end after SIGTERM
    #[arg(long, value_name = "TIME", default_value_t = GRACE.into())]
    pub grace: humantime::Duration,
}

#[derive(Debug, Args)]
pub struct LogArguments {
    /// What is logged: a level (error, warn, info, debug, trace), or a list of target=level
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", default_value = "info")]
    pub log_level: String,
}

/// How a command is run, wherever one is.
#[derive(Debug, Args)]
pub struct RunArguments {
    #[command(flatten)]
    pub limits: TimeLimits,
    #[command(flatten)]
    pub log: LogArguments,
}

impl RunArguments {
    pub fn spec(self, Template { program, arguments }: Template) -> CommandSpec {
        let (time_limit, grace) = (self.limits.timeout, self.limits.grace.into());
        CommandSpec { arguments, time_limit, grace, ..CommandSpec::new(program) }
    }
}

/// How a command is run for each of many jobs.
#[derive(Debug, Args)]
pub struct RunnerArguments {
    /// Run so many at a time
    #[arg(short = 'n', long, value_name = "JOBS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub jobs: u16,
    /// Replace {...} within the script of a shell's -c, too, where what they stand for is executed; take what looks mistyped
    #[arg(long)]
    allow_shell_templates: bool,
    /// Write the output to DIR/DAY/NAME.log, NAME being the job's key or the entry's name; without it, to standard output
    /// behind each NAME
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// How long logs are kept
    #[arg(long, value_name = "TIME", default_value = "30days", requires = "log_dir")]
    keep: humantime::Duration,
    #[command(flatten)]
    pub run: RunArguments,
    /// The program that does a job, and its arguments
    #[arg(required = true, last = true, num_args = 1..)]
    command: Vec<OsString>,
}

impl RunnerArguments {
    /// The settings; `places` are what is replaced in the arguments.
    pub fn settings(self, places: &[&str]) -> Result<RunnerSettings, Failure> {
        let logs = self.log_dir.map(absolute).transpose()?;
        Ok(RunnerSettings {
            template: template(self.command, self.allow_shell_templates, places)?,
            time_limit: self.run.limits.timeout,
            grace: self.run.limits.grace.into(),
            logs: logs.map(|directory| (directory, self.keep.into())),
        })
    }
}

/// A command to be run for many things. Unless they are allowed, places in a shell's script are refused, and so are
/// mistyped ones.
pub fn template(
    command: Vec<OsString>,
    allow_scripts: bool,
    places: &[&str],
) -> Result<Template, Failure> {
    let mut words = command.into_iter();
    let program = words.next().ok_or_else(|| Failure::usage("there is no COMMAND"))?;
    let template = Template { program, arguments: words.collect() };
    if !allow_scripts {
        let all = [places, &[PAYLOAD_FILE]].concat();
        let refused = template.refuse_scripts(places);
        let refused = refused.and_then(|()| refuse_mistyped(&template.arguments, &all));
        refused.map_err(Failure::of(ExitCode::Usage))?;
    }
    Ok(template)
}

/// An argument that is almost one of these placeholders would be passed on as it is.
fn refuse_mistyped(arguments: &[OsString], places: &[&str]) -> Result<(), String> {
    for argument in arguments.iter().filter_map(|argument| argument.to_str()) {
        let is_in_braces = argument.starts_with('{') && argument.ends_with('}');
        if is_in_braces
            && !places.contains(&argument)
            && let Some(meant) = one_slip_from(argument, places)
        {
            return Err(format!(
                "{argument} is no placeholder: did you mean {meant}? --allow-shell-templates takes it as it is"
            ));
        }
    }
    Ok(())
}

/// Paths are kept whole: `status` shows them, and is called from other directories.
pub fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(&path).map_err(|error| {
        Failure::usage(format!("the path {:?} cannot be used: {error}", path.display()))
    })
}

/// For a time that must not be nothing.
pub fn above_zero(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(time) if time.is_zero() => Err("give a time above 0, or none".to_owned()),
        result => result.map_err(|error| error.to_string()),
    }
}

/// One of some words, each with its help, and what it stands for.
pub fn one_of<T: Copy + Send + Sync>(
    words: &'static [(&'static str, &'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let known = words.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(known).try_map(|word| {
        let found = words.iter().find(|(known, ..)| *known == word);
        found.map(|(.., value)| *value).ok_or("there is no such word")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mistyped_is_refused() {
        let check = |arguments: &[&str]| {
            let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
            refuse_mistyped(&arguments, &["{key}", "{payload}"])
        };
        for (mistyped, meant) in
            [("{kye}", "{key}"), ("{keys}", "{key}"), ("{paylod}", "{payload}")]
        {
            let error = check(&["{key}", mistyped]).unwrap_err();
            let right = format!("{mistyped} is no placeholder: did you mean {meant}?");
            assert!(error.starts_with(&right), "{error}");
        }
        assert_eq!(check(&["{key}", "{}", "{print}", "{name}", "x{kye}", "key", "{key"]), Ok(()));
    }
}
