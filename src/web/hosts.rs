//! Under which names the page answers. A foreign page may have its own name lead to the loopback (DNS rebinding), and would
//! read what is there: so `Host` must be a name that is ours. On a Unix socket no browser is led anywhere.

use std::any::Any;
use std::net::{IpAddr, Ipv6Addr};

use actix_web::HttpResponse;
use actix_web::dev::{Extensions, ServiceRequest};
use actix_web::http::StatusCode;
use actix_web::http::header::HOST;

use super::answers::TEXT;

/// Bytes of all names and values of a request's head.
const HEAD_MAX_BYTES: usize = 16 * 1024;

struct OverUnixSocket;

/// Names that are ours beside those of the loopback, in lower case.
pub(super) struct Hosts(Vec<String>);

impl Hosts {
    pub(super) fn new(names: Vec<String>) -> Self {
        Self(names)
    }

    /// Whether a value of `Host` is one of ours, with whatever port.
    pub(super) fn has(&self, host: &str) -> bool {
        let Some(name) = without_port(host) else { return false };
        if let Some(literal) = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
            return literal.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
        }
        if let Ok(address) = name.parse::<IpAddr>() {
            return address.is_ipv4() && address.is_loopback();
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        name == "localhost" || self.0.contains(&name)
    }
}

/// The name before the port, if that is a number.
fn without_port(host: &str) -> Option<&str> {
    let end = host.rfind(']').map_or(0, |bracket| bracket + 1);
    match host[end..].find(':') {
        None => Some(host),
        Some(colon) => {
            let (name, port) = host.split_at(end + colon);
            port[1..].parse::<u16>().is_ok().then_some(name)
        }
    }
}

/// Notes of a new connection how it came.
pub(super) fn note_socket(connection: &dyn Any, extensions: &mut Extensions) {
    if connection.is::<actix_rt::net::UnixStream>() {
        extensions.insert(OverUnixSocket);
    }
}

/// What is answered to who asks under another name, or says too much.
pub(super) fn refused(hosts: &Hosts, request: &ServiceRequest) -> Option<HttpResponse> {
    let head = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let head = head.sum::<usize>() + request.uri().to_string().len();
    let (status, text) = if head > HEAD_MAX_BYTES {
        let text = "the head of the request is too large\n";
        (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text)
    } else if request.conn_data::<OverUnixSocket>().is_some() || is_named(hosts, request) {
        return None;
    } else {
        let text = "this page has another name: start `shiftboss web` with --allow-host NAME\n";
        (StatusCode::MISDIRECTED_REQUEST, text)
    };
    Some(HttpResponse::build(status).content_type(TEXT).body(text))
}

/// There is one `Host`, and it is ours; the one of an absolute address, too.
fn is_named(hosts: &Hosts, request: &ServiceRequest) -> bool {
    let mut named = request.headers().get_all(HOST);
    let (Some(host), None) = (named.next(), named.next()) else { return false };
    let is_ours = |host: &str| hosts.has(host);
    host.to_str().is_ok_and(is_ours)
        && request.uri().authority().is_none_or(|authority| is_ours(authority.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names of the loopback and those that are allowed, and nothing that only looks like them.
    #[test]
    fn names_are_parsed() {
        let hosts = Hosts::new(vec!["queue.example.org".to_owned()]);
        let ours = "localhost localhost:7390 LOCALHOST. 127.0.0.1 127.0.0.1:1 127.1.2.3 [::1] [::1]:7390 \
            queue.example.org Queue.Example.org.:80";
        for ours in ours.split(' ') {
            assert!(hosts.has(ours), "{ours}");
        }
        let foreign = "evil.org localhost.evil.org 127.0.0.1.evil.org queue.example.org.evil 10.0.0.1 [::2] ::1 \
            localhost:x localhost: [::1 [::1]x localhost@evil.org 0.0.0.0 2130706433 queue.example.orgx localhost:70000";
        for foreign in foreign.split(' ').chain([""]) {
            assert!(!hosts.has(foreign), "{foreign}");
        }
    }
}
