//! URLs of servers, which may have a password in them: as they were typed, and as they are shown.
//!
//! For databases and brokers. The callers report what is wrong with one.

use std::fmt;

/// A URL of a server, as it was typed. It is shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct Url(String);

impl Url {
    pub fn new(typed: impl Into<String>) -> Self {
        Self(typed.into())
    }

    pub fn begins_with(&self, schemes: &[&str]) -> bool {
        schemes.iter().any(|scheme| self.0.starts_with(scheme))
    }

    /// `word:/`, whatever the word.
    pub fn has_scheme(&self) -> bool {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "+-.".contains(letter);
        let scheme = self.0.split_once(":/").map_or("", |(scheme, _)| scheme);
        !scheme.is_empty() && scheme.chars().all(is_part)
    }

    /// Whether a password stands before the host.
    pub fn has_password(&self) -> bool {
        let (_, rest) = self.split_scheme();
        rest.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    }

    /// The part before the hosts, the hosts, and the part after them.
    pub fn parts(&self) -> (&str, &str, &str) {
        let after =
            |text: &str, at: Option<usize>, length| at.map_or(0, |at| at + length).min(text.len());
        let start = after(&self.0, self.0.find("://"), 3);
        let end = self.0[start..].find(['/', '?']).map_or(self.0.len(), |at| start + at);
        let hosts = start + after(&self.0[start..end], self.0[start..end].rfind('@'), 1);
        (&self.0[..hosts], &self.0[hosts..end], &self.0[end..])
    }

    /// The part that ends with `:/`, which may be missing, and the rest.
    fn split_scheme(&self) -> (&str, &str) {
        self.0.split_at(self.0.find(":/").map_or(0, |at| at + 2))
    }

    pub fn as_typed(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_string())
    }
}

/// Leaves out what stands between the user and the last `@`, and any parameter that may be a password: one of that name,
/// or whose name is written in escapes.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, rest) = self.split_scheme();
        f.write_str(scheme)?;
        let place = match rest.rsplit_once('@') {
            Some((user, place)) => {
                write!(f, "{}@", user.split(':').next().unwrap_or_default())?;
                place
            }
            None => rest,
        };
        let (place, parameters) = place.split_once('?').unwrap_or((place, ""));
        f.write_str(place)?;
        let is_harmless = |one: &&str| {
            let name = one.split('=').next().unwrap_or_default();
            !name.contains('%') && !name.contains("password")
        };
        let shown: Vec<&str> = parameters.split('&').filter(is_harmless).collect();
        let shown = shown.join("&");
        if shown.is_empty() { Ok(()) } else { write!(f, "?{shown}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was typed is shown, even if it is not a URL, but never a password.
    #[test]
    fn it_is_shown_without_its_password() {
        for (typed, shown) in [
            ("amqp://u:secret@h:5672/v?heartbeat=5", "amqp://u@h:5672/v?heartbeat=5"),
            ("postgres://u@h/d?password=secret&sslmode=prefer", "postgres://u@h/d?sslmode=prefer"),
            ("amqp://u:se#cret/@h/", "amqp://u@h/"),
            ("127.0.0.1:5672", "127.0.0.1:5672"),
            ("u:secret@h:5672", "u@h:5672"),
            ("amqp:u:secret@h", "amqp@h"),
            ("in", "in"),
            ("", ""),
        ] {
            assert_eq!(Url::new(typed).to_string(), shown);
        }
    }
}
