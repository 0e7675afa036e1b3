//! What a page can change: requests to the daemon on its socket, as those of `shiftboss pause`, `resume`, `retry`, `bump`,
//! `hold` and `unhold`.
//!
//! Only for who has the token, and only from our own pages: a browser says where a request comes from. A refusal is a text and a
//! status; what was done leads back to a page that shows it.

use std::time::Duration;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{HeaderMap, LOCATION, ORIGIN};
use actix_web::middleware::{Next, from_fn};
use actix_web::{Error, HttpMessage, HttpRequest, HttpResponse, web};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    Bump, Hold, HoldTime, Name, Pause, Reason, Resume, Retry, Unhold, Verb, checked,
};
use tracing::info;

use super::Page;
use super::answers::turned_away;
use super::hosts::Hosts;
use super::queries::View;
use super::token;
use crate::client;
use crate::exit::{ExitCode, Failure};
use crate::lock::LockState;
use crate::text::shown;

/// How long the daemon may take.
const PATIENCE: Duration = Duration::from_secs(4);
/// What a browser says of where a request comes from.
const FETCH_SITE: &str = "sec-fetch-site";

pub(super) fn routes(config: &mut web::ServiceConfig) {
    let scope = web::scope("/actions")
        .wrap(from_fn(allow))
        .route("/pause", web::post().to(pause))
        .route("/resume", web::post().to(resume))
        .route("/retry", web::post().to(retry))
        .route("/bump", web::post().to(bump))
        .route("/hold", web::post().to(hold))
        .route("/unhold", web::post().to(unhold));
    config.service(scope);
}

/// Who asks, by the name that was given with the token.
struct By(String);

/// Refuses others' pages and all without the token, before anything of the body is read.
async fn allow(
    page: web::Data<Page>,
    request: ServiceRequest,
    next: Next<impl MessageBody + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let refused = if request.method() != Method::POST {
        None
    } else if !is_from_our_page(request.headers(), &page.hosts) {
        Some(HttpResponse::Forbidden().body("this comes from another page than ours\n"))
    } else {
        match token::require(&page, &request).await {
            Ok(by) => {
                request.extensions_mut().insert(By(by));
                None
            }
            Err(refused) => Some(refused),
        }
    };
    match refused {
        None => Ok(next.call(request).await?.map_into_left_body()),
        Some(refused) => Ok(request.into_response(refused).map_into_right_body()),
    }
}

async fn pause(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    act(&request, page, Pause {}, "../").await
}

async fn resume(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    act(&request, page, Resume {}, "../").await
}

#[derive(Deserialize)]
struct OfKey {
    k: String,
}

async fn retry(request: HttpRequest, page: web::Data<Page>, of: web::Form<OfKey>) -> HttpResponse {
    act_on(&request, page, &of.k, |key| Retry { key }).await
}

async fn bump(request: HttpRequest, page: web::Data<Page>, of: web::Form<OfKey>) -> HttpResponse {
    act_on(&request, page, &of.k, |key| Bump { key }).await
}

#[derive(Deserialize)]
struct HoldForm {
    k: String,
    /// Seconds; empty: until somebody ends it.
    #[serde(default, rename = "for")]
    time: String,
    #[serde(default)]
    reason: String,
}

async fn hold(
    request: HttpRequest,
    page: web::Data<Page>,
    form: web::Form<HoldForm>,
) -> HttpResponse {
    let HoldForm { k, time, reason } = form.into_inner();
    let bad = |name: &str, why| HttpResponse::BadRequest().body(format!("{name}: {why}\n"));
    let seconds = if time.is_empty() { Ok(HoldTime::UNTIL_UNHELD) } else { checked(&time) };
    match (seconds, checked::<Reason>(&reason)) {
        (Ok(seconds), Ok(reason)) => {
            act_on(&request, page, &k, |key| Hold { key, seconds, reason }).await
        }
        (Err(why), _) => bad("for", why),
        (_, Err(why)) => bad("reason", why),
    }
}

async fn unhold(request: HttpRequest, page: web::Data<Page>, of: web::Form<OfKey>) -> HttpResponse {
    act_on(&request, page, &of.k, |key| Unhold { key }).await
}

/// Has the daemon do something about a key, and leads to its page.
async fn act_on<V: Verb<Answer: DeserializeOwned> + Send + 'static>(
    request: &HttpRequest,
    page: web::Data<Page>,
    key: &str,
    order: impl FnOnce(Key) -> V,
) -> HttpResponse {
    let key = match Key::new(key) {
        Ok(key) => key,
        Err(error) => return HttpResponse::BadRequest().body(format!("this is no key: {error}\n")),
    };
    let back = format!("../key?k={}", utf8_percent_encode(key.as_str(), NON_ALPHANUMERIC));
    act(request, page, order(key), &back).await
}

/// Has the daemon do something, and leads to where it is seen.
async fn act<V: Verb<Answer: DeserializeOwned> + Send + 'static>(
    request: &HttpRequest,
    page: web::Data<Page>,
    order: V,
    back: &str,
) -> HttpResponse {
    let by = request.extensions().get::<By>().map(|By(name)| name.clone()).unwrap_or_default();
    info!(by = shown(&by), "{} is asked for on the page.", shown(&order.to_string()));
    let shared = page.clone();
    let by = Name::resembling(if by.is_empty() { "web" } else { &by });
    let ask = move || {
        let told = tell(&shared, by, order);
        told.map_err(|failure| (failure.code(), failure.to_string()))
    };
    match page.queries.answer(&View::default(), ask).await {
        Ok(Ok(())) => {
            // What was known is so no longer.
            page.pages.forget();
            HttpResponse::SeeOther().insert_header((LOCATION, back)).finish()
        }
        Ok(Err((ExitCode::BadData, why))) => {
            HttpResponse::Conflict().body(format!("it was not done: {why}\n"))
        }
        Ok(Err((_, why))) => {
            HttpResponse::ServiceUnavailable().body(format!("it was not done: {why}\n"))
        }
        Err(overloaded) => turned_away(overloaded),
    }
}

fn tell<V>(page: &Page, by: Name, order: V) -> Result<(), Failure>
where
    V: Verb<Answer: DeserializeOwned>,
{
    match page.find()?.daemon {
        LockState::By(daemon) => client::ask_as(&daemon.socket, by, order, PATIENCE).map(drop),
        LockState::Free => Err(Failure::new(ExitCode::Unavailable, "no daemon runs")),
        LockState::Unknown(why) => Err(Failure::new(ExitCode::Unavailable, why)),
    }
}

/// Whether a page of ours sends it: the browser says so, or at least no other page's name. What is no browser says nothing, and
/// nobody leads it.
fn is_from_our_page(headers: &HeaderMap, hosts: &Hosts) -> bool {
    if let Some(site) = headers.get(FETCH_SITE) {
        return site == "same-origin";
    }
    let Some(origin) = headers.get(ORIGIN) else { return true };
    let name = origin.to_str().ok().and_then(|text| text.split_once("://"));
    name.is_some_and(|(_, host)| {
        hosts.has(host) || headers.get("host").is_some_and(|own| own == host)
    })
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderName, HeaderValue};

    use super::*;

    /// The browser's word counts; without it a foreign origin is refused.
    #[test]
    fn other_pages_are_refused() {
        let hosts = Hosts::new(vec!["queue.example.org".to_owned()]);
        let from = |said: &[(&'static str, &'static str)]| {
            let value =
                |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
            is_from_our_page(&said.iter().map(value).collect(), &hosts)
        };
        assert!(from(&[]) && from(&[("sec-fetch-site", "same-origin")]));
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(!from(&[("sec-fetch-site", site), ("origin", "http://localhost")]), "{site}");
        }
        assert!(from(&[("origin", "https://queue.example.org")]));
        assert!(from(&[("origin", "http://127.0.0.1:7390"), ("host", "127.0.0.1:7390")]));
        assert!(from(&[("origin", "http://[fe80::1]:1"), ("host", "[fe80::1]:1")]));
        for origin in ["null", "https://evil.example", "https://queue.example.org.evil", ""] {
            assert!(!from(&[("origin", origin), ("host", "localhost")]), "{origin}");
        }
    }
}
