//! `shiftboss web`: what operators look at over HTTP. A process of its own, so that nobody's page slows a worker: it reads the
//! database as `status` does, and asks the daemon on its socket for what only the daemon knows.
//!
//! Here stands which address answers what. [`listening`] opens what it listens on, [`hosts`] refuses whoever was led here under a
//! foreign name, [`token`] who has none, [`queries`] keeps questions few, [`request_log`] notes
//! what is asked. [`pages`] are for people, [`api`] and [`answers`] for machines, [`actions`] change something.
//!
//! Nobody holds a connection for ever: it has one request, whose head and whose body and answer have their time; and one whose client
//! reads nothing is closed by the system ([`listening`]).

mod actions;
mod answers;
mod api;
mod hosts;
mod listening;
mod pages;
mod queries;
mod request_log;
mod token;

use std::sync::Arc;
use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServerHandle, ServiceRequest, ServiceResponse};
use actix_web::error::ErrorRequestTimeout;
use actix_web::http::{KeepAlive, Method};
use actix_web::middleware::{DefaultHeaders, Next, from_fn};
use actix_web::{App, Error, HttpServer, Route, guard, web};
use shiftboss_actors::clock::{Clock, SystemClock};
use shiftboss_protocol::model::UnixSeconds;
use shiftboss_queue::reader::{ReadResult, Reader};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::exit::{ExitCode, Failure};
use crate::outputs::Outputs;
use crate::signals::Signals;
use crate::stores;
use crate::target::{Asked, Target};
use hosts::Hosts;
pub use listening::Listen;
use listening::Listener;
use queries::Queries;
pub use token::{Token, TokenFor};

/// What is logged unless something else is asked for: without what the server says of its threads.
pub const LOG_LEVEL: &str = "info,actix_server=warn";
const WORKERS: usize = 2;
/// Connections of each of them: all together, and the database's files, are below the usual limit of 1,024 open files. Who comes
/// then waits until one ends.
const CONNECTIONS_MAX: usize = 400;
/// From the connection to the end of a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// From there until an answer is made, which no question takes as long for: a body has to come by then.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);
/// Requests that are under way when it is asked to stop.
const SHUTDOWN_SECONDS: u64 = 3;
/// By how much its priority is lower than others'.
const NICENESS: i32 = 10;
const BODY_MAX_BYTES: usize = 8 * 1024;
/// Nothing is loaded from elsewhere, framed, or sent elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

#[derive(Debug)]
pub struct Settings {
    pub listen: Vec<Listen>,
    /// Names that `Host` may have, in lower case.
    pub allow_host: Vec<String>,
    pub title: String,
    pub outputs: Option<Outputs>,
    /// Without one nothing can be changed.
    pub token: Option<Token>,
    pub target: Asked,
}

/// What all requests share.
struct Page {
    settings: Settings,
    hosts: Hosts,
    queries: Queries,
    /// Of `/healthz` alone: there is a place for it however many ask for pages.
    health_queries: Queries,
}

impl Page {
    fn new(settings: Settings) -> Self {
        let hosts = Hosts::new(settings.allow_host.clone());
        Self { settings, hosts, queries: Queries::default(), health_queries: Queries::default() }
    }

    /// Asks the queue. What takes too long is broken off.
    fn look<T>(
        &self,
        ask: impl FnOnce(&Target, &dyn Reader, UnixSeconds) -> ReadResult<T>,
    ) -> Result<T, Failure> {
        let target = self.find()?;
        let reader = stores::glance(&target.database, queries::QUESTION_MAX)?;
        ask(&target, &*reader, SystemClock.now()).map_err(stores::read_failure)
    }

    /// Where the daemon is now: it may have been started since the last time.
    fn find(&self) -> Result<Target, Failure> {
        self.settings.target.find()
    }
}

pub fn run(mut settings: Settings) -> Result<(), Failure> {
    give_way();
    let listeners = listening::open(std::mem::take(&mut settings.listen))?;
    let page = Arc::new(Page::new(settings));
    // A mistyped target is an error at once; a daemon or a database that is not there yet may come.
    if let Err(failure) = page.find()
        && matches!(failure.code(), ExitCode::Usage | ExitCode::Configuration)
    {
        return Err(failure);
    }
    if let Err(failure) = page.look(|_, reader, now| reader.status(now)) {
        warn!("{failure}; until that is mended pages are answered with 503");
    }
    actix_rt::System::new().block_on(async move {
        let signals = Signals::new().map_err(Failure::of(ExitCode::Unavailable))?;
        let server = HttpServer::new(move || {
            let shared = Arc::clone(&page);
            App::new()
                .app_data(web::Data::from(Arc::clone(&page)))
                .app_data(web::PayloadConfig::new(BODY_MAX_BYTES))
                .wrap(from_fn(move |request, next| admit(Arc::clone(&shared), request, next)))
                .wrap(headers())
                .wrap(from_fn(request_log::note))
                .wrap(from_fn(in_time))
                .configure(routes)
        })
        .on_connect(hosts::note_socket)
        .workers(WORKERS)
        .max_connections(CONNECTIONS_MAX)
        .keep_alive(KeepAlive::Disabled)
        .client_request_timeout(HEAD_TIMEOUT)
        .disable_signals()
        .shutdown_timeout(SHUTDOWN_SECONDS);
        let server = listeners.into_iter().try_fold(server, |server, listener| {
            let added = listener.address().and_then(|address| {
                info!("Listening: {address}");
                match listener {
                    Listener::Tcp(tcp) => server.listen(tcp),
                    Listener::Unix(unix) => server.listen_uds(unix),
                }
            });
            added.map_err(|error| listening::cannot("what was opened", &error))
        })?;
        let server = server.run();
        actix_rt::spawn(stop(server.handle(), signals));
        server.await.map_err(Failure::of(ExitCode::Internal))
    })
}

/// The first signal lets requests end that are under way, within [`SHUTDOWN_SECONDS`]; a second one does not.
async fn stop(server: ServerHandle, mut signals: Signals) {
    for is_graceful in [true, false] {
        let signal = signals.next().await;
        info!(signal, "Stopping.");
        // The call itself stops it; the future only waits for the end.
        drop(server.stop(is_graceful));
    }
}

/// Whatever is looked at, workers and the daemon come first.
fn give_way() {
    if let Err(error) = rustix::process::nice(NICENESS) {
        warn!("The priority cannot be lowered: {error}");
    }
}

/// Refuses who asks under another name, who has no token where one is needed, and orders from elsewhere.
async fn admit(
    page: Arc<Page>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let refused = match hosts::refused(&page.hosts, &request) {
        None if token::is_needed(&page, &request) => token::require(&page, &request).await.err(),
        refused => refused,
    };
    let is_order = request.method() == Method::POST && request.path().starts_with(actions::PREFIX);
    let refused = match refused {
        None if is_order => actions::refused(&page, &request).await,
        refused => refused,
    };
    match refused {
        None => Ok(next.call(request).await?.map_into_left_body()),
        Some(refused) => Ok(request.into_response(refused).map_into_right_body()),
    }
}

/// Gives up a request whose body does not come.
async fn in_time<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let late = |_| ErrorRequestTimeout("the request takes too long\n");
    timeout(ANSWER_TIMEOUT, next.call(request)).await.map_err(late)?
}

/// A route for GET and HEAD.
fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

fn routes(config: &mut web::ServiceConfig) {
    config
        .default_service(web::to(answers::no_such_page))
        .route("/metrics", get().to(answers::metrics))
        .route("/healthz", get().to(answers::healthz))
        .route("/robots.txt", get().to(answers::robots))
        .configure(pages::routes)
        .configure(api::routes)
        .configure(actions::routes);
}

fn headers() -> DefaultHeaders {
    DefaultHeaders::new()
        .add(("Content-Security-Policy", POLICY))
        .add(("X-Content-Type-Options", "nosniff"))
        .add(("Referrer-Policy", "no-referrer"))
        .add(("Cross-Origin-Resource-Policy", "same-origin"))
        .add(("Cache-Control", "no-store"))
}
