//! The stylesheet, the script and the icon, which browsers keep: another one has another address.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpResponse, web};

/// A file that is part of the program.
pub(super) struct Asset {
    /// Relative, as all addresses are.
    pub address: String,
    content_type: &'static str,
    text: &'static str,
}

pub(super) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("style.css", "text/css; charset=utf-8", include_str!("../templates/style.css"))
});
pub(super) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("page.js", "text/javascript; charset=utf-8", include_str!("../templates/page.js"))
});

pub(super) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("icon.svg", "image/svg+xml", include_str!("../templates/icon.svg"))
});

impl Asset {
    fn new(name: &str, content_type: &'static str, text: &'static str) -> Self {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let address = format!("static/{:016x}/{name}", hasher.finish());
        Self { address, content_type, text }
    }

    fn send(&self) -> HttpResponse {
        HttpResponse::Ok()
            .content_type(self.content_type)
            .insert_header((CACHE_CONTROL, "max-age=31536000, immutable"))
            .body(self.text)
    }
}

pub(super) fn routes(config: &mut web::ServiceConfig) {
    config
        .route(&format!("/{}", STYLE.address), crate::web::get().to(async || STYLE.send()))
        // Where browsers look for it beside what is no page.
        .route("/favicon.ico", crate::web::get().to(async || ICON.send()))
        .route(&format!("/{}", ICON.address), crate::web::get().to(async || ICON.send()))
        .route(&format!("/{}", SCRIPT.address), crate::web::get().to(async || SCRIPT.send()));
}
