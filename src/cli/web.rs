//! The arguments of `web`, as typed, and the page's checked settings made of them.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use crate::exit::{ExitCode, Failure};
use crate::web::{Listen, Settings};

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  shiftboss web /var/lib/shiftboss/state.db
  shiftboss web --listen unix:/run/shiftboss-web/http /run/shiftboss/worker.sock
  shiftboss web --listen 10.0.0.5:7390 --listen-any --allow-host queue.example.org state.db")]
pub struct WebArguments {
    /// Where to listen: an address, or unix:PATH. May be given several times
    #[arg(long, value_name = "ADDRESS|unix:PATH", default_value = "127.0.0.1:7390", value_parser = listen)]
    pub listen: Vec<Listen>,
    /// Listen on addresses that other machines reach, too: whoever reaches one sees keys and payloads
    #[arg(long)]
    pub listen_any: bool,
    /// A name under which the page is asked for, beside localhost and addresses of the loopback. May be given several
    /// times
    #[arg(long, value_name = "NAME", value_parser = host)]
    pub allow_host: Vec<String>,
    /// The database or the daemon's socket, as of `status`
    pub target: Option<PathBuf>,
    /// Look at the daemon of this configuration file
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What is logged, as of `serve`
    #[arg(long, value_name = "FILTER", env = "SHIFTBOSS_LOG", default_value = "info")]
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
        let WebArguments { listen, allow_host, target, config, .. } = typed;
        Ok(Self { listen, allow_host, target, config })
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
