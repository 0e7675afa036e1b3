//! `shiftboss web`: what operators look at over HTTP. A process of its own, so that nobody's page slows a worker: it reads the
//! database as `status` does, and asks the daemon on its socket for what only the daemon knows.
//!
//! Here it listens, and says which address answers what. [`hosts`] refuses whoever was led here under a foreign name,
//! [`queries`] keeps questions few, [`answers`] are what is sent, [`mod@health`] whether the daemon is well.

mod answers;
mod health;
mod hosts;
mod queries;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix_web::middleware::{DefaultHeaders, from_fn};
use actix_web::{App, HttpServer, web};
use tracing::info;

use crate::exit::{ExitCode, Failure};
use crate::socket::listen_at;
use crate::target::Target;
use answers::Health;
use hosts::Hosts;
use queries::{Queries, View};

/// Threads that answer requests.
const WORKERS: usize = 2;
/// Connections that one of them has at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 12_000;
/// From the connection to the end of a request's head.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests that are under way when it is asked to stop.
const SHUTDOWN_SECONDS: u64 = 3;
/// Who may connect to a socket that it makes: its user and group, as a reverse proxy may be.
const SOCKET_MODE: u32 = 0o660;
/// Nothing is loaded from elsewhere, framed, or sent elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Where to listen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    Address(SocketAddr),
    Unix(PathBuf),
}

#[derive(Debug)]
pub struct Settings {
    pub listen: Vec<Listen>,
    /// Names that `Host` may have, in lower case.
    pub allow_host: Vec<String>,
    pub target: Option<PathBuf>,
    pub config: Option<PathBuf>,
}

/// What all requests share.
struct Page {
    target: Option<PathBuf>,
    config: Option<PathBuf>,
    queries: Queries,
    /// `None`: the database could not be read.
    metrics: View<Option<String>>,
    health: View<Health>,
}

impl Page {
    /// Where the daemon is now: it may have been started since the last time.
    fn find(&self) -> Result<Target, Failure> {
        Target::find(self.target.clone(), self.config.as_deref())
    }
}

/// Serves until a signal asks for the end.
pub fn run(settings: Settings) -> Result<(), Failure> {
    let Settings { listen, allow_host, target, config } = settings;
    let page = web::Data::new(Page {
        target,
        config,
        queries: Queries::default(),
        metrics: View::default(),
        health: View::default(),
    });
    // Whoever mistyped the target is told so at once; a daemon or a database that is not there yet may come.
    if let Err(failure) = page.find()
        && matches!(failure.code(), ExitCode::Usage | ExitCode::Configuration)
    {
        return Err(failure);
    }
    let hosts = Arc::new(Hosts::new(allow_host));
    actix_rt::System::new().block_on(async move {
        let server = HttpServer::new(move || {
            let hosts = Arc::clone(&hosts);
            App::new()
                .app_data(page.clone())
                .wrap(from_fn(move |request, next| hosts::check(Arc::clone(&hosts), request, next)))
                .wrap(headers())
                .route("/metrics", web::get().to(answers::metrics))
                .route("/healthz", web::get().to(answers::healthz))
                .route("/robots.txt", web::get().to(answers::robots))
        })
        .on_connect(hosts::note_socket)
        .workers(WORKERS)
        .max_connections(CONNECTIONS_MAX)
        .client_request_timeout(REQUEST_TIMEOUT)
        .shutdown_timeout(SHUTDOWN_SECONDS);
        let server = listen.iter().try_fold(server, |server, listen| match listen {
            Listen::Address(address) => {
                server.bind(address).map_err(|error| cannot_listen(&address.to_string(), &error))
            }
            Listen::Unix(path) => server
                .listen_uds(listen_at(path, SOCKET_MODE)?)
                .map_err(|error| cannot_listen(&path.display().to_string(), &error)),
        })?;
        for address in server.addrs() {
            info!("Listening: http://{address}/");
        }
        server.run().await.map_err(Failure::of(ExitCode::Internal))
    })
}

fn headers() -> DefaultHeaders {
    DefaultHeaders::new()
        .add(("Content-Security-Policy", POLICY))
        .add(("X-Content-Type-Options", "nosniff"))
        .add(("Referrer-Policy", "no-referrer"))
        .add(("Cross-Origin-Resource-Policy", "same-origin"))
        .add(("Cache-Control", "no-store"))
}

fn cannot_listen(place: &str, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::AddrInUse => ExitCode::AlreadyRunning,
        _ => ExitCode::CannotCreate,
    };
    Failure::new(code, format!("cannot listen on {place}: {error}"))
}
