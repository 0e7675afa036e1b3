//! One connection to the server: how to reach it, and how calls are limited.
//!
//! Made by the store and by the reader; each owns its own. Nothing here knows the queue.

use std::future::{Future, poll_fn};
use std::time::Duration;

use shiftboss_postgres::SETTINGS;
use shiftboss_postgres::error::{PASSWORD, answered, classify, in_words};
use shiftboss_protocol::model::jitter;
use shiftboss_protocol::url::Url;
use shiftboss_queue::error::StoreError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_postgres::config::{Config, Host};
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::password::port;
use super::{password, tls};
use crate::exit::{ExitCode, Failure};
use crate::stores::database::SCHEMES;

/// The longest time for a connection or a call: a frozen server accepts connections and never answers.
pub(super) const CALL_MAX: Duration = Duration::from_secs(5);
/// A connection whose other end is unreachable ends after this.
const UNHEARD_MAX: Duration = Duration::from_secs(60);
const NAME_MAX: usize = 63;
/// Delays before a connection that failed is made again.
pub(super) const RECONNECT: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_secs(5));
/// Settings of each connection besides those of the records. The time of calls is limited on our side; a call that is
/// given up ends its connection once the server has answered, so the server must not take much longer. Waiting for a
/// lock ends before the call's time is over.
const OWN_SETTINGS: &str =
    "SELECT set_config(name, '0', false) FROM unnest('{idle_session_timeout, transaction_timeout}'::text[]) AS name
    WHERE current_setting(name, true) IS NOT NULL;
    SET lock_timeout = '4s'; SET statement_timeout = '10s'; SET search_path = shiftboss";

/// A server and a database, from their URL and the environment.
#[derive(Clone)]
pub(crate) struct Server {
    url: Url,
    /// As messages name it: its URL, and where that leads to.
    shown: String,
    config: Config,
    tls: MakeRustlsConnect,
}

impl Server {
    /// Does not connect yet.
    pub(crate) fn new(url: &Url) -> Result<Self, Failure> {
        let refused = |code, why| Failure::new(code, format!("{url} cannot be used: {why}"));
        let wrong = |why: String| refused(ExitCode::Usage, why);
        if !url.begins_with(&SCHEMES) {
            let how = "a database on a server is written postgres://USER@HOST/DATABASE, and one in a file as its path";
            return Err(wrong(how.to_owned()));
        }
        let (plain, trust) = tls::take_trust(url.as_typed()).map_err(wrong)?;
        let mut config: Config =
            plain.parse().map_err(|error: tokio_postgres::Error| wrong(in_words(&error)))?;
        with_password(&config).map_err(|why| refused(ExitCode::Configuration, why))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            let how = "it names no host; for a server on this machine that is the directory of its socket, with %2F for each /";
            return Err(wrong(how.to_owned()));
        }
        if config.get_dbname().is_none() {
            return Err(wrong("it names no database: postgres://USER@HOST/DATABASE".to_owned()));
        }
        // The others are tried before the time for a connection is over.
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
        let share = CALL_MAX / u32::try_from(hosts).unwrap_or(u32::MAX);
        config.application_name("shiftboss").connect_timeout(share).tcp_user_timeout(UNHEARD_MAX);
        let tls = tls::connector(trust).map_err(wrong)?;
        let shown = format!("{url} ({})", places(&config));
        Ok(Self { url: url.clone(), shown, config, tls })
    }

    /// As it is shown: without a password.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The same, under a name that the server shows, and that no other daemon's connections have.
    pub(super) fn named(self, daemon: &str) -> Self {
        self.called(&application_name(daemon))
    }

    pub(super) fn called(mut self, application: &str) -> Self {
        self.config.application_name(application);
        self
    }

    pub(crate) async fn connect(&self) -> Result<Client, StoreError> {
        self.connect_listening(|_| ()).await
    }

    /// The same; `heard` is called with the text of each notice.
    pub(super) async fn connect_listening(
        &self,
        heard: impl Fn(&str) + Send + 'static,
    ) -> Result<Client, StoreError> {
        let connected = timeout(CALL_MAX, self.enter(heard)).await;
        let client = connected.map_err(|_| too_late(&format!("{} did", self.shown)))?;
        let client = client.map_err(|error| match error {
            StoreError::Fatal(text) => StoreError::Denied(text),
            error => error,
        })?;
        limited(client.batch_execute(&format!("{SETTINGS}; {OWN_SETTINGS}"))).await?;
        Ok(client)
    }

    async fn enter(&self, heard: impl Fn(&str) + Send + 'static) -> Result<Client, StoreError> {
        // It may have been changed since.
        let config = with_password(&self.config).map_err(StoreError::Fatal)?;
        let connected = config.connect(self.tls.clone()).await;
        let (client, connection) = connected.map_err(|error| unconnected(&self.shown, &error))?;
        tokio::spawn(attend(connection, heard));
        Ok(client)
    }
}

trait Wire: AsyncRead + AsyncWrite + Unpin {}
impl<W: AsyncRead + AsyncWrite + Unpin> Wire for W {}

/// Reads the server's messages until the connection has ended: with its client, once all answers have come.
async fn attend<S: Wire, T: Wire>(
    mut connection: tokio_postgres::Connection<S, T>,
    heard: impl Fn(&str),
) {
    while let Some(Ok(message)) = poll_fn(|task| connection.poll_message(task)).await {
        if let AsyncMessage::Notification(notice) = message {
            heard(notice.payload());
        }
    }
}

/// The settings with a password, if one can be found for a URL that has none.
fn with_password(config: &Config) -> Result<Config, String> {
    let mut config = config.clone();
    if config.get_password().is_none()
        && let Some(found) = password::find(&config)?
    {
        config.password(found);
    }
    Ok(config)
}

/// Where servers are looked for, in this order: HOST:PORT, or the file of a socket.
fn places(config: &Config) -> String {
    let names = config.get_hosts().iter().enumerate().map(|(at, host)| match host {
        Host::Tcp(name) => format!("{name}:{}", port(config, at)),
        Host::Unix(directory) => format!("{}/.s.PGSQL.{}", directory.display(), port(config, at)),
    });
    let addresses = config.get_hostaddrs().iter().enumerate();
    let addresses = addresses.map(|(at, address)| format!("{address}:{}", port(config, at)));
    names.chain(addresses).collect::<Vec<_>>().join(", ")
}

/// The server cuts names of connections, and changes what is not ASCII: a name that would be changed gets a digest.
fn application_name(daemon: &str) -> String {
    let name = format!("shiftboss {daemon}");
    if name.len() <= NAME_MAX && name.is_ascii() {
        return name;
    }
    let digest = format!(" {:08x}", jitter(daemon));
    let shown = name.chars().filter(char::is_ascii).take(NAME_MAX - digest.len());
    shown.chain(digest.chars()).collect()
}

/// A call that ends in time.
pub(super) async fn limited<T>(
    call: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    timeout(CALL_MAX, call).await.map_err(|_| unanswered())?.map_err(classify)
}

pub(super) fn unanswered() -> StoreError {
    too_late("the server did")
}

fn too_late(who_did: &str) -> StoreError {
    StoreError::Busy(format!("{who_did} not answer within {} s", CALL_MAX.as_secs()))
}

/// Why there is no connection, and what to do. A server that is unreachable now may come back.
fn unconnected(server: &str, error: &tokio_postgres::Error) -> StoreError {
    let why = in_words(error);
    let why = why.strip_prefix("error connecting to server: ").unwrap_or(&why);
    let text = format!("cannot connect to {server}: {why}");
    match error.code() {
        None if why.contains("password missing") => StoreError::Fatal(format!(
            "cannot connect to {server}: the server wants a password, and none was found; {PASSWORD}"
        )),
        None => match untrusted(why) {
            // It may be an unintended replica, or a server that has no process left to say more.
            Some(remedy) => StoreError::Busy(text + remedy),
            None => StoreError::Busy(text + ": see whether the server runs, and listens there"),
        },
        Some(state) if *state == SqlState::INSUFFICIENT_PRIVILEGE => {
            StoreError::Fatal(text + ": the role needs CONNECT on the database")
        }
        Some(state) => answered(state, text),
    }
}

/// What to do if the server does not fulfil the URL's demands.
fn untrusted(why: &str) -> Option<&'static str> {
    if why.contains("server does not support TLS") {
        return Some(": sslmode wants it, so set ssl = on at the server, with a certificate");
    }
    why.contains("invalid peer certificate").then_some(
        ": with sslmode=verify-full the host in the URL is one that the server's certificate names, and who signed that \
         is one of this machine's root certificates, or in the file that sslrootcert names",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names that the server would cut or alter stay different.
    #[test]
    fn each_daemon_has_its_own_name_for_connections() {
        assert_eq!(application_name("host"), "shiftboss host");
        let host = "ip-172-31-255-255.eu-central-1.compute.internal.example.com";
        let names: Vec<_> = ["größe", "gröse", &format!("{host}1"), &format!("{host}2")]
            .map(application_name)
            .into();
        assert!(names.iter().all(|name| name.len() <= NAME_MAX && name.is_ascii()), "{names:?}");
        assert!(
            names.iter().enumerate().all(|(at, name)| !names[..at].contains(name)),
            "{names:?}"
        );
    }
}
