//! What a page can change: requests to the daemon on its socket, as those of `shiftboss pause`, `resume`, `retry`, `bump`,
//! `cancel`, `hold` and `unhold`.
//!
//! Only with the token, and only from our own pages: a browser says where a request comes from. A refusal is a text and a
//! status; what was done leads back to a page that shows it.

use actix_web::dev::ServiceRequest;
use actix_web::http::header::{HeaderMap, LOCATION, ORIGIN};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, web};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use shiftboss_protocol::model::Key;
use shiftboss_protocol::verbs::{
    Bump, CancelRunning, Hold, HoldGroup, HoldTime, Name, Pause, Request, Resume, Retry, Unhold,
    UnholdGroup, checked,
};
use tracing::info;

use super::Page;
use super::answers::turned_away;
use super::hosts::Hosts;
use super::queries::Overloaded;
use super::token;
use crate::exit::ExitCode;
use crate::orders;
use crate::text::shown;

/// What a browser says of where a request comes from.
const FETCH_SITE: &str = "sec-fetch-site";

/// What can be asked for: the words of addresses.
pub(super) const PREFIX: &str = "/actions/";
const ROUTE: &str = "/actions/{action:pause|resume|retry|bump|cancel|hold|unhold}";

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config.route(ROUTE, web::post().to(act));
}

/// Who asks, by the name that was given with the token.
struct By(String);

/// What is answered to others' pages and to all without the token, before anything of the body is read.
pub(super) async fn refused(page: &Page, request: &ServiceRequest) -> Option<HttpResponse> {
    if !is_from_our_page(request.headers(), &page.hosts) {
        let text = "this comes from another page than ours\n";
        return Some(HttpResponse::Forbidden().body(text));
    }
    let by = token::require(page, request).await;
    by.map(|by| _ = request.extensions_mut().insert(By(by))).err()
}

/// What a form says: what it is about, and of a hold for how long, and why.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Form {
    k: String,
    /// A group, instead of a key.
    g: String,
    /// Seconds; empty: until somebody ends it.
    #[serde(rename = "for")]
    time: String,
    reason: String,
}

impl Form {
    /// What is asked for, or what is wrong with it.
    fn order(&self, action: &str) -> Result<Request, String> {
        let key = || Key::new(&self.k).map_err(|error| format!("this is no key: {error}"));
        let group = || checked::<Name>(&self.g).map_err(|why| format!("g: {why}"));
        Ok(match action {
            "pause" => Pause {}.into(),
            "resume" => Resume {}.into(),
            "retry" => Retry { key: key()? }.into(),
            "bump" => Bump { key: key()? }.into(),
            "cancel" => CancelRunning { key: key()? }.into(),
            "hold" => {
                let seconds = match &*self.time {
                    "" => HoldTime::UNTIL_UNHELD,
                    time => checked(time).map_err(|why| format!("for: {why}"))?,
                };
                let reason = checked(&self.reason).map_err(|why| format!("reason: {why}"))?;
                match &*self.g {
                    "" => Hold { key: key()?, seconds, reason }.into(),
                    _ => HoldGroup { group: group()?, seconds, reason }.into(),
                }
            }
            _ if !self.g.is_empty() => UnholdGroup { group: group()? }.into(),
            _ => Unhold { key: key()? }.into(),
        })
    }

    /// Where what was done is seen.
    fn back(&self) -> String {
        let in_address = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        match (&*self.k, &*self.g) {
            ("", "") => "../".to_owned(),
            ("", group) => format!("../tasks?status=waiting&group={}", in_address(group)),
            (key, _) => format!("../key?k={}", in_address(key)),
        }
    }
}

/// Has the daemon do something, and leads to where it is seen.
async fn act(
    request: HttpRequest,
    page: web::Data<Page>,
    action: web::Path<String>,
    body: String,
) -> HttpResponse {
    let form = web::Query::<Form>::from_query(&body).map_err(|error| error.to_string());
    let asked = form.and_then(|form| Ok((form.order(&action)?, form.back())));
    let (order, back) = match asked {
        Ok(asked) => asked,
        Err(why) => return HttpResponse::BadRequest().body(format!("{why}\n")),
    };
    let by = request.extensions().get::<By>().map(|By(name)| name.clone()).unwrap_or_default();
    info!(by = shown(&by), "{} is asked for on the page.", shown(&order.to_string()));
    let shared = page.clone();
    let by = Name::resembling(if by.is_empty() { "web" } else { &by });
    let give = move || {
        let given = shared.find().and_then(|target| orders::give(&target, by, order));
        given.map_err(|failure| (failure.code(), failure.to_string()))
    };
    match page.queries.ask(give).await {
        Ok(Ok(_)) => {
            // What was known is so no longer.
            page.queries.forget();
            HttpResponse::SeeOther().insert_header((LOCATION, back)).finish()
        }
        Ok(Err((ExitCode::BadData, why))) => {
            HttpResponse::Conflict().body(format!("it was not done: {why}\n"))
        }
        Ok(Err((_, why))) => {
            HttpResponse::ServiceUnavailable().body(format!("it was not done: {why}\n"))
        }
        Err(Overloaded::Late) => {
            page.queries.forget();
            let text = "it takes too long, and may still be done: look before you order it again\n";
            HttpResponse::ServiceUnavailable().body(text)
        }
        Err(overloaded) => turned_away(overloaded),
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
