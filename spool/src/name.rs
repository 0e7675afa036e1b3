//! Names of queues and entries, checked once.
//!
//! A name is one component of a path, in any bytes a file system takes. It is shown, logged and put into JSON with
//! `\xNN` for bytes that are not printable text, so that the shown form can be read back.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Serialize, Serializer};
use shiftboss_runner::escape::misleads;
use thiserror::Error;

/// The longest name that file systems take.
pub(crate) const NAME_BYTES_MAX: usize = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NameError {
    #[error("a name must not be empty")]
    Empty,
    #[error("a name of {0} bytes is too long: {NAME_BYTES_MAX} may be")]
    TooLong(usize),
    #[error("a name must not begin with a dot")]
    LeadingDot,
    #[error("a name must not contain a slash or a zero byte")]
    Separator,
    #[error("a backslash in a name is written \\x5c, and other bytes as \\x and two hex digits")]
    Escape,
}

fn check(bytes: &[u8]) -> Result<(), NameError> {
    match bytes {
        [] => Err(NameError::Empty),
        _ if bytes.len() > NAME_BYTES_MAX => Err(NameError::TooLong(bytes.len())),
        [b'.', ..] => Err(NameError::LeadingDot),
        _ if bytes.iter().any(|byte| matches!(byte, b'/' | 0)) => Err(NameError::Separator),
        _ => Ok(()),
    }
}

/// Bytes as text: printable text as it is, any other byte as `\xNN`.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut text = String::new();
    let escape = |bytes: &[u8], text: &mut String| {
        bytes.iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    };
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if misleads(character) || character == '\\' {
                escape(character.encode_utf8(&mut [0; 4]).as_bytes(), &mut text);
            } else {
                text.push(character);
            }
        }
        escape(chunk.invalid(), &mut text);
    }
    text
}

/// The bytes that [`text`] has shown.
fn unescaped(text: &str) -> Result<Vec<u8>, NameError> {
    let mut bytes = Vec::with_capacity(text.len());
    for (index, part) in text.split("\\x").enumerate() {
        let mut rest = part;
        if index > 0 {
            let digits = part.get(..2).ok_or(NameError::Escape)?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| NameError::Escape)?);
            rest = &part[2..];
        }
        if rest.contains('\\') {
            return Err(NameError::Escape);
        }
        bytes.extend(rest.as_bytes());
    }
    Ok(bytes)
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Box<[u8]>);

        impl $type {
            pub fn new(bytes: impl AsRef<[u8]>) -> Result<Self, NameError> {
                check(bytes.as_ref())?;
                Ok(Self(bytes.as_ref().into()))
            }

            /// A name that the program makes itself.
            ///
            /// # Panics
            /// If it is not a name.
            pub fn trusted(text: &str) -> Self {
                assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
                Self(text.as_bytes().into())
            }

            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }

            pub fn as_os_str(&self) -> &OsStr {
                OsStr::from_bytes(&self.0)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&text(&self.0))
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
        }

        impl FromStr for $type {
            type Err = NameError;

            /// Reads what `Display` shows, `\xNN` and all.
            fn from_str(text: &str) -> Result<Self, NameError> {
                Self::new(unescaped(text)?)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

name! {
    /// An entry's name: unique in the spool for the entry's whole life. Order is bytewise.
    EntryName
}
name! {
    /// A queue's name: its directory in the spool.
    QueueName
}

/// Names in the order of time: microseconds since 1970 in 17 digits, this process, and a counter, so
/// that later entries of one machine sort behind earlier ones. A generator for
/// [`Spool::enqueue`](super::Spool::enqueue); it does not need the attempt.
pub fn time_ordered(_attempt: u32) -> EntryName {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    EntryName::trusted(&format!("{now:017}-{:07}-{count:06}", std::process::id()))
}
