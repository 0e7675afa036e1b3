//! The stylesheet, the script and the icon, which browsers keep: other ones have other addresses.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, web};

/// Their names, types and texts.
const ASSETS: [(&str, &str, &str); 3] = [
    ("style.css", "text/css; charset=utf-8", include_str!("../templates/style.css")),
    ("page.js", "text/javascript; charset=utf-8", include_str!("../templates/page.js")),
    ("icon.svg", "image/svg+xml", include_str!("../templates/icon.svg")),
];

/// Relative, as all addresses are, so that a reverse proxy may put the page below any path.
pub(super) static DIRECTORY: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    ASSETS.hash(&mut hasher);
    format!("static/{:016x}", hasher.finish())
});

pub(super) fn routes(config: &mut web::ServiceConfig) {
    for (name, content_type, text) in ASSETS {
        let send = move || async move {
            HttpResponse::Ok()
                .content_type(content_type)
                .insert_header((CACHE_CONTROL, "max-age=31536000, immutable"))
                .body(text)
        };
        config.route(&format!("/{}/{name}", *DIRECTORY), crate::web::get().to(send));
        if name == "icon.svg" {
            // Where browsers look for it beside what is no page.
            config.route("/favicon.ico", crate::web::get().to(send));
        }
    }
}
