//! What is asked for out of bounds is refused with a sentence that says what is not: on a page or, for programs, in an object. The
//! bounds and their sentences are in [`asked`](super::pages::asked).

use actix_web::error::{InternalError, QueryPayloadError};
use actix_web::{HttpRequest, HttpResponse, web};

use super::{Page, api, pages};
use crate::text::shown;

/// Answers to who asks for what is out of bounds.
pub(super) fn config() -> web::QueryConfig {
    web::QueryConfig::default().error_handler(|error, request| {
        let why = match &error {
            QueryPayloadError::Deserialize(why) => shown(&why.to_string()),
            error => error.to_string(),
        };
        InternalError::from_response(error, refused(request, &why)).into()
    })
}

fn refused(request: &HttpRequest, why: &str) -> HttpResponse {
    match request.app_data::<web::Data<Page>>() {
        Some(page) if !request.path().starts_with(api::PREFIX) => {
            pages::bad_request(request, page, why)
        }
        _ => api::bad_request(why),
    }
}
