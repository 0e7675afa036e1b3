//! Asks whether handing out is to be paused: nobody is to do that by the way.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use askama::Template;
use shiftboss_queue::reader::ReadResult;

use super::parts::Frame;
use super::{Sight, show};
use crate::web::Page;

pub(super) async fn get(request: HttpRequest, page: web::Data<Page>) -> HttpResponse {
    show(&request, page, "pause".to_owned(), |sight| Ok((StatusCode::OK, Pause::ask(sight)?))).await
}

#[derive(Template)]
#[template(path = "pause.html")]
struct Pause {
    frame: Frame,
    in_flight: i64,
}

impl Pause {
    fn ask(sight: &Sight<'_>) -> ReadResult<Self> {
        let status = sight.reader.status(sight.now)?;
        Ok(Self { frame: sight.frame("Pause", &status), in_flight: status.rows.in_flight })
    }
}
