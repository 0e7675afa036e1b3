//! The arguments of `web`, as typed, and the page's checked settings made of them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::exit::{ExitCode, Failure};
use crate::outputs::Outputs;
use crate::target::Asked;
use crate::web::{LOG_LEVEL, Listen, Settings, Token, TokenFor};

/// Characters of a title.
const TITLE_MAX: usize = 100;

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss web
  shiftboss web --listen unix:/run/shiftboss-web/http -t /run/shiftboss/worker.sock
  shiftboss web --output '/var/log/jobs/{day}/{key}.log' --token-file token
  shiftboss web --listen 10.0.0.5:7390 --listen-any --allow-host queue.example.org")]
pub struct WebArguments {
    /// Where to listen: an address, or unix:PATH. May be given several times. Sockets of the init system (LISTEN_FDS) take
    /// their place
    #[arg(long, value_name = "ADDRESS|unix:PATH", default_value = "127.0.0.1:7390", value_parser = listen)]
    pub listen: Vec<Listen>,
    /// Listen on addresses that other machines reach, too: whoever reaches one sees keys and payloads
    #[arg(long)]
    pub listen_any: bool,
    /// A name under which the page is asked for, beside localhost and addresses of the loopback. May be given several
    /// times
    #[arg(long, value_name = "NAME", value_parser = host)]
    pub allow_host: Vec<String>,
    /// Have buttons to pause, retry, bump and hold: they need the token in this file as password, with any user name. The
    /// daemon must take orders from this command's user. Without it nothing can be changed
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What needs the token
    #[arg(long, value_name = "WHAT", default_value = "actions", requires = "token_file")]
    pub token_for: TokenFor,
    /// Show what jobs wrote: the files of `work --log-dir DIR` are 'DIR/{day}/{key}.log'
    #[arg(long, value_name = "'DIR/{day}/{key}.log'")]
    pub output: Option<Outputs>,
    /// What the pages are called
    #[arg(long, value_name = "TEXT", default_value = "shiftboss", value_parser = title)]
    pub title: String,
    #[command(flatten)]
    pub target: Asked,
    /// What is logged, as of `serve`
    #[arg(
        long,
        value_name = "FILTER",
        env = "SHIFTBOSS_LOG",
        default_value = LOG_LEVEL
    )]
    pub log_level: String,
}

impl TryFrom<WebArguments> for Settings {
    type Error = Failure;

    fn try_from(typed: WebArguments) -> Result<Self, Failure> {
        for listen in &typed.listen {
            if let Listen::Address(address) = listen
                && !address.ip().is_loopback()
                && !typed.listen_any
            {
                return Err(Failure::new(
                    ExitCode::Configuration,
                    format!(
                        "other machines may reach {address}, and whoever does sees keys and payloads: put a reverse proxy in front of the loopback, or give --listen-any"
                    ),
                ));
            }
        }
        let WebArguments { listen, allow_host, title, output: outputs, target, .. } = typed;
        let token = typed.token_file.map(|file| Token::read(&file, typed.token_for)).transpose()?;
        Ok(Self { listen, allow_host, title, outputs, token, target })
    }
}

fn listen(text: &str) -> Result<Listen, String> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Listen::Unix(path.into()));
    }
    text.parse::<SocketAddr>()
        .map(Listen::Address)
        .map_err(|_| "give an address and a port, such as 127.0.0.1:7390, or unix:PATH".to_owned())
}

/// A name as `Host` has it, without a port.
fn host(text: &str) -> Result<String, String> {
    let is_name = |text: &str| {
        text.chars().all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '.'))
    };
    if text.is_empty() || !is_name(text) {
        return Err("give a host name alone, such as queue.example.org".to_owned());
    }
    Ok(text.trim_end_matches('.').to_ascii_lowercase())
}

fn title(text: &str) -> Result<String, String> {
    if text.trim().is_empty() || text.chars().count() > TITLE_MAX || text.contains(char::is_control)
    {
        return Err(format!("give 1 to {TITLE_MAX} characters"));
    }
    Ok(text.to_owned())
}
