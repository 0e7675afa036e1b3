//! Why a broker refuses: the codes of AMQP 0-9-1, and what to do about it.

use lapin::ErrorKind;
use shiftboss_protocol::url::Url;

/// Wrong user, password or rights.
const ACCESS_REFUSED: u16 = 403;
/// There is no such queue or exchange.
pub(crate) const NOT_FOUND: u16 = 404;
/// Another connection has it exclusively.
pub(crate) const RESOURCE_LOCKED: u16 = 405;
/// It was declared with other arguments.
pub(crate) const PRECONDITION_FAILED: u16 = 406;
/// No such virtual host, or one that this user may not use.
const NOT_ALLOWED: u16 = 530;

/// The code of an error that the broker has sent.
pub(crate) fn code(error: &lapin::Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(refused) => Some(refused.get_id()),
        _ => None,
    }
}

/// Whether a queue is only missing because the node that has it is down.
pub(crate) fn is_node_down(error: &lapin::Error) -> bool {
    error.to_string().contains("down or inaccessible")
}

/// Whether a later try is refused, too, until an administrator mends it.
pub(crate) fn is_lasting(error: &lapin::Error) -> bool {
    matches!(code(error), Some(ACCESS_REFUSED | PRECONDITION_FAILED | NOT_ALLOWED))
}

/// The largest size of a message, if the error with this text says that one is larger.
pub(crate) fn message_size_max(error: &str) -> Option<usize> {
    let (_, size) = error.split_once("message size ")?;
    let (_, most) = size.split_once("max size ")?;
    let digits = most.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(most.len());
    most[..digits].parse().ok()
}

/// What to do about an error with this text.
pub(crate) fn remedy(error: &str, url: &Url) -> &'static str {
    if error.contains("certificate") {
        ". Let the URL have the name that the certificate is for, and SSL_CERT_FILE name the file with the authority \
         that signed it"
    } else if error.contains("InvalidContentType") {
        ". The port may be one without TLS: give the broker's port for TLS (5671 unless it is set otherwise), or amqp:// in place \
         of amqps://"
    } else if error.contains("Login was refused") && !url.has_password() {
        ". The URL has no password: give it as amqp://user:password@host:5672/vhost, in SHIFTBOSS_BROKER rather than on \
         the command line"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of RabbitMQ 3.10 and 4.
    #[test]
    fn the_size_of_messages() {
        for (said, most) in [
            ("message size 70000 is larger than configured max size 65536", Some(65_536)),
            ("message size 7 is larger than max size 5; close", Some(5)),
            ("inequivalent arg", None),
        ] {
            let said = format!("PRECONDITION_FAILED - {said}");
            assert_eq!(message_size_max(&said), most, "{said}");
        }
    }

    /// A refused login is explained by a missing password only if there is none.
    #[test]
    fn a_missing_password() {
        let refused = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN.";
        for (url, is_missing) in [
            ("amqp://h/", true),
            ("amqp://u@h:5672/v", true),
            ("amqp://u:secret@h/", false),
            ("amqp://u:a@b@h/", false),
        ] {
            let said = remedy(refused, &Url::new(url)).contains("has no password");
            assert_eq!(said, is_missing, "{url}");
        }
        assert_eq!(remedy("Connection refused", &Url::new("amqp://h/")), "");
    }
}
