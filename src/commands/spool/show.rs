//! `shiftboss spool show`: one entry.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::list::holder;
use super::{failure, print};
use crate::cli::OneEntry;
use crate::commands::text::{cut, line};
use crate::exit::Failure;
use shiftboss_spool::{Sight, Spool};

/// Characters of the metadata that are shown to people; the JSON object has them all.
const METADATA_WIDTH: usize = 1000;

/// An entry with its metadata.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    sight: Sight,
    /// Null if it is not UTF-8; the file has it.
    metadata: Option<String>,
    #[serde(serialize_with = "path")]
    metadata_path: PathBuf,
    #[serde(serialize_with = "path")]
    data_path: PathBuf,
}

/// A path as it is; one that is not UTF-8 with `\xNN` for the bytes that are not.
fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    serializer.serialize_str(&text)
}

/// Shows an entry.
///
/// # Errors
/// When it is not there, or cannot be read.
pub fn run(spool: &Spool, entry: &OneEntry, json: bool) -> Result<(), Failure> {
    let sight = spool.sight(&entry.place.queue, &entry.name).map_err(failure)?;
    let metadata = String::from_utf8(spool.seen_metadata(&sight).map_err(failure)?).ok();
    let (metadata_path, data_path) = (sight.metadata_path.clone(), spool.data(&entry.name).path());
    let shown = Shown { sight, metadata, metadata_path, data_path };
    print(&shown, json, render).map(drop)
}

fn file(path: &Path, bytes: u64) -> String {
    format!("{bytes} bytes in {}", crate::commands::text::shown(&path.to_string_lossy()))
}

fn render(shown: &Shown) -> String {
    let sight = &shown.sight;
    let since = humantime::format_rfc3339_seconds(sight.since).to_string();
    let data = match sight.data {
        Some(data) => file(&shown.data_path, data.bytes),
        None => "missing".to_owned(),
    };
    let mut text = line("name", &sight.name.to_string())
        + &line("queue", &sight.queue.to_string())
        + &line("checked out by", &holder(&sight.holding))
        + &line("since", &since)
        + &line("attempts", &sight.attempts.to_string())
        + &line("data", &data);
    if let Some(reason) = &sight.reason {
        text += &line("reason", &cut(reason, METADATA_WIDTH));
    }
    if sight.metadata_bytes > 0 {
        text += &line("metadata", &file(&shown.metadata_path, sight.metadata_bytes));
        let metadata = shown.metadata.as_deref().unwrap_or("(no text)");
        text += &line("", &cut(metadata, METADATA_WIDTH));
    }
    text
}
