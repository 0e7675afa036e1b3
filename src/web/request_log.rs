//! A line in the log for each request: what was asked for, and how it was answered. What machines ask for again and again is said
//! only to who wants to know everything.

use std::time::Instant;

use actix_web::Error;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use tracing::{debug, info};

use crate::text::cut;

const ADDRESS_WIDTH: usize = 200;
/// What is asked for every few seconds, or with each page.
const QUIET: [&str; 4] = ["/healthz", "/metrics", "/favicon.ico", "/static/"];

pub(super) async fn note<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let begun = Instant::now();
    let is_quiet = QUIET.iter().any(|quiet| request.path().starts_with(quiet));
    let asked = format!("{} {}", request.method(), request.uri());
    let response = next.call(request).await?;
    let (asked, status) = (cut(&asked, ADDRESS_WIDTH), response.status().as_u16());
    let ms = begun.elapsed().as_millis();
    if is_quiet {
        debug!(status, ms, "{asked}");
    } else {
        info!(status, ms, "{asked}");
    }
    Ok(response)
}
