//! What a key's jobs wrote on a day, or one of its attempts: the end of it on a page, or all of it as a text.

use std::fs::File;
use std::io::{self, Read};
use std::time::SystemTime;

use actix_web::http::StatusCode;
use actix_web::{Error, HttpRequest, HttpResponse, web};
use askama::Template;
use futures_util::stream::try_unfold;
use shiftboss_queue::reader::{ReadError, ReadResult};

use super::asked::{Asked, LATEST};
use super::parts::{Frame, in_address, text};
use super::{HTML, Sight, message, show};
use crate::outputs::Outputs;
use crate::outputs::ends::start_of_end;
use crate::outputs::screen::{Colours, line};
use crate::web::Page;

/// What a page shows.
const SHOWN_BYTES_MAX: u64 = 64 * 1024;
/// What is sent as a text.
const RAW_BYTES_MAX: u64 = 16 * 1024 * 1024;
const PIECE_BYTES: usize = 64 * 1024;

pub(super) async fn get(request: HttpRequest, page: web::Data<Page>, asked: Asked) -> HttpResponse {
    let asked = asked.with_default("day", LATEST);
    let (key, day) = (asked.get("k").to_owned(), asked.get("day").to_owned());
    let Some(outputs) = page.settings.outputs.clone() else {
        let text = "No outputs are shown: shiftboss web was started without --output.";
        return message(&page, StatusCode::NOT_FOUND, "Output", text).send(&request);
    };
    if asked.get("raw") == "1" {
        return send_raw(&request, &page, outputs, key, day).await;
    }
    let attempt = asked.number("attempt");
    let question = format!("output {day} {attempt:?} {key}");
    let ask = move |sight: &Sight<'_>| Shown::ask(sight, &outputs, &key, day, attempt);
    show(&request, page, &question, HTML, ask).await
}

#[derive(Template)]
#[template(path = "output.html")]
struct Shown {
    frame: Frame,
    key: String,
    address: String,
    day: String,
    attempt: Option<i64>,
    /// `None`: there is no such output.
    text: Option<String>,
    is_cut: bool,
}

impl Shown {
    fn ask(
        sight: &Sight<'_>,
        outputs: &Outputs,
        key: &str,
        day: String,
        attempt: Option<i64>,
    ) -> ReadResult<(StatusCode, Self)> {
        let frame = sight.frame(&format!("Output of {}", text(key)));
        let day = day_of(outputs, key, day);
        let found = match outputs.end(key, &day, attempt, SHOWN_BYTES_MAX) {
            Ok(found) => found,
            Err(error) => {
                return Err(ReadError::Failed(format!(
                    "cannot read the output of {}: {error}",
                    text(key)
                )));
            }
        };
        let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
        let is_cut = found.as_ref().is_some_and(|end| end.is_cut);
        let shown = Self {
            frame,
            key: text(key),
            address: in_address(key),
            day,
            attempt,
            text: found.map(|end| plain(&end.bytes)),
            is_cut,
        };
        Ok((status, shown))
    }
}

fn day_of(outputs: &Outputs, key: &str, day: String) -> String {
    if day != LATEST {
        return day;
    }
    outputs.latest(key, SystemTime::now()).unwrap_or(day)
}

/// The last bytes of a file, piece by piece, as fast as they are taken.
async fn send_raw(
    request: &HttpRequest,
    page: &web::Data<Page>,
    outputs: Outputs,
    key: String,
    day: String,
) -> HttpResponse {
    let open = move || {
        let day = day_of(&outputs, &key, day);
        let file = outputs.open(&key, &day)?;
        file.map(|file| start_of_end(file, RAW_BYTES_MAX)).transpose()
    };
    match tokio::task::spawn_blocking(open).await.map_err(io::Error::other).flatten() {
        Ok(Some(file)) => HttpResponse::Ok()
            .content_type("text/plain; charset=utf-8")
            .streaming(try_unfold((file, RAW_BYTES_MAX), piece)),
        Ok(None) => {
            message(page, StatusCode::NOT_FOUND, "Output", "There is no such output.").send(request)
        }
        Err(error) => {
            tracing::warn!("An output cannot be read: {error}");
            let text = "The output cannot be read. The log of shiftboss web says why.";
            message(page, StatusCode::SERVICE_UNAVAILABLE, "Output", text).send(request)
        }
    }
}

/// What is left of a file, and how many bytes of it may be sent.
type Left = (File, u64);

async fn piece((mut file, left): Left) -> Result<Option<(web::Bytes, Left)>, Error> {
    let read = move || {
        let mut bytes = Vec::with_capacity(PIECE_BYTES);
        let most = left.min(PIECE_BYTES as u64);
        file.by_ref().take(most).read_to_end(&mut bytes).map(|_| (bytes, file))
    };
    let (bytes, file) = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
    let left = left.saturating_sub(bytes.len() as u64);
    Ok((!bytes.is_empty()).then(|| (bytes.into(), (file, left))))
}

fn plain(bytes: &[u8]) -> String {
    let lines: Vec<String> =
        bytes.split(|byte| *byte == b'\n').map(|text| line(text, Colours::LeftOut)).collect();
    lines.join("\n")
}
