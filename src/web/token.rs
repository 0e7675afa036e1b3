//! The token without which nothing is changed, or, if so asked, nothing is seen: Basic authentication, of which any user name is
//! taken, for what was done is noted under it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::dev::ServiceRequest;
use actix_web::http::header::{AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use subtle::ConstantTimeEq;
use tracing::warn;

use super::Page;
use super::answers::TEXT;
use crate::exit::{ExitCode, Failure};

const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: u64 = 4 * 1024;
/// What browsers ask their user for.
const CHALLENGE: &str =
    "Basic realm=\"shiftboss: any user name, and the token as password\", charset=\"UTF-8\"";
/// How late a wrong token is answered.
const PENALTY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TokenFor {
    /// What changes something
    Actions,
    /// All but /healthz
    All,
}

pub struct Token {
    bytes: Vec<u8>,
    needed_for: TokenFor,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Token").field("needed_for", &self.needed_for).finish_non_exhaustive()
    }
}

impl Token {
    /// Reads it from a file, which nobody but its user and group may read; a line's end is no part of it.
    ///
    /// # Errors
    /// When it cannot be read, others may read it, or it is short enough to be guessed.
    pub fn read(file: &Path, needed_for: TokenFor) -> Result<Self, Failure> {
        let shown = file.display();
        let refused = |why: String| Failure::new(ExitCode::Configuration, why);
        let cannot = |error| refused(format!("cannot read the token file {shown}: {error}"));
        let found = fs::metadata(file).map_err(cannot)?;
        if found.permissions().mode() & 0o007 != 0 {
            return Err(refused(format!("everybody may read {shown}: chmod o= {shown}")));
        }
        if found.len() > TOKEN_BYTES_MAX {
            return Err(refused(format!(
                "{shown} has more than {TOKEN_BYTES_MAX} bytes: it is no token file"
            )));
        }
        let bytes = fs::read(file).map_err(cannot)?.trim_ascii().to_vec();
        if bytes.len() < TOKEN_BYTES_MIN {
            return Err(refused(format!(
                "the token in {shown} has less than {TOKEN_BYTES_MIN} characters: make one, such as by `openssl rand -hex 16`"
            )));
        }
        Ok(Self { bytes, needed_for })
    }

    fn is(&self, given: &[u8]) -> bool {
        self.bytes.as_slice().ct_eq(given).into()
    }
}

/// The name that a value of `Authorization` has beside the token; `None`: it does not have that.
fn name(token: &Token, given: &HeaderValue) -> Option<String> {
    let (scheme, rest) = given.to_str().ok()?.split_once(' ')?;
    let decoded =
        STANDARD.decode(rest.trim()).ok().filter(|_| scheme.eq_ignore_ascii_case("basic"))?;
    let colon = decoded.iter().position(|byte| *byte == b':').unwrap_or(decoded.len());
    let (name, password) = decoded.split_at(colon);
    let is_right = token.is(password.get(1..).unwrap_or_default());
    is_right.then(|| String::from_utf8_lossy(name).into_owned())
}

/// Who asks for something that needs the token.
///
/// # Errors
/// The answer to who does not have it; a wrong one is answered late.
pub(super) async fn require(page: &Page, request: &ServiceRequest) -> Result<String, HttpResponse> {
    let Some(token) = &page.settings.token else {
        let text =
            "nothing can be changed here: `shiftboss web` was started without --token-file\n";
        return Err(HttpResponse::Forbidden().body(text));
    };
    if let Some(given) = request.headers().get(AUTHORIZATION) {
        if let Some(name) = name(token, given) {
            return Ok(name);
        }
        let address = request.peer_addr().map(|address| address.ip());
        warn!(?address, "A wrong token was given.");
        tokio::time::sleep(PENALTY).await;
    }
    Err(HttpResponse::Unauthorized()
        .insert_header((WWW_AUTHENTICATE, CHALLENGE))
        .content_type(TEXT)
        .body("the token is needed: any user name, and the token as password\n"))
}

/// Whether this request needs the token.
pub(super) fn is_needed(page: &Page, request: &ServiceRequest) -> bool {
    let token = page.settings.token.as_ref();
    // Who only looks whether the process lives has no token.
    token.is_some_and(|it| it.needed_for == TokenFor::All) && request.path() != "/healthz"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The token is the password of Basic authentication, whatever the name.
    #[test]
    fn the_token_is_the_password() {
        let token = Token { bytes: b"0123456789abcdef".to_vec(), needed_for: TokenFor::Actions };
        let header = |scheme: &str, pair: &str| {
            HeaderValue::from_str(&format!("{scheme} {}", STANDARD.encode(pair))).unwrap()
        };
        let name = |given: &HeaderValue| name(&token, given);
        assert_eq!(name(&header("Basic", "ann:0123456789abcdef")).as_deref(), Some("ann"));
        assert_eq!(name(&header("basic", ":0123456789abcdef")).as_deref(), Some(""));
        for (scheme, wrong) in [
            ("Basic", "ann:0123456789abcde"),
            ("Basic", "ann:0123456789abcdefg"),
            ("Basic", "0123456789abcdef"),
            ("Bearer", "ann:0123456789abcdef"),
        ] {
            assert_eq!(name(&header(scheme, wrong)), None, "{wrong}");
        }
        for wrong in ["Basic", "Basic %%%", ""] {
            assert_eq!(name(&HeaderValue::from_static(wrong)), None, "{wrong}");
        }
    }

    /// A file that others may read, or that is short, is refused.
    #[test]
    fn a_token_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("token");
        let read = |text: &str, mode| {
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            Token::read(&file, TokenFor::All).map(|token| token.bytes.len())
        };
        assert_eq!(read("0123456789abcdef\n", 0o640).ok(), Some(16));
        assert!(read("0123456789abcdef\n", 0o644).unwrap_err().to_string().contains("chmod o="));
        assert!(
            read("0123456789abcde\n\n", 0o600).unwrap_err().to_string().contains("less than 16")
        );
        assert!(read(&"x".repeat(5_000), 0o600).is_err());
    }
}
