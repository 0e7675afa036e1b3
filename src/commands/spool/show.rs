//! `shiftboss spool show`: one entry.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

use super::list::holder;
use super::{failure, print};
use crate::cli::OneEntry;
use crate::commands::text::{cut, line};
use crate::exit::Failure;
use shiftboss_spool::{EntryInfo, Spool};

/// Characters of the metadata that are shown to people; the JSON object has them all.
const METADATA_WIDTH: usize = 1000;

/// An entry with its metadata.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    info: EntryInfo,
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

pub fn run(spool: &Spool, entry: &OneEntry, json: bool) -> Result<(), Failure> {
    let info = spool.info(&entry.place.queue, &entry.name).map_err(failure)?;
    let metadata =
        String::from_utf8(spool.metadata(&entry.place.queue, &entry.name).map_err(failure)?).ok();
    let (metadata_path, data_path) = (info.metadata_path.clone(), spool.data(&entry.name).path());
    let shown = Shown { info, metadata, metadata_path, data_path };
    print(&shown, json, render).map(drop)
}

fn file(path: &Path, bytes: u64) -> String {
    format!("{bytes} bytes in {}", crate::commands::text::shown(&path.to_string_lossy()))
}

fn render(shown: &Shown) -> String {
    let info = &shown.info;
    let since = humantime::format_rfc3339_seconds(info.since).to_string();
    let data = match info.data {
        Some(data) => file(&shown.data_path, data.bytes),
        None => "missing".to_owned(),
    };
    let mut text = line("name", &info.name.to_string())
        + &line("queue", &info.queue.to_string())
        + &line("checked out by", &holder(&info.holding))
        + &line("since", &since)
        + &line("attempts", &info.attempts.to_string())
        + &line("data", &data);
    if let Some(reason) = &info.reason {
        text += &line("reason", &cut(reason, METADATA_WIDTH));
    }
    if info.metadata_bytes > 0 {
        text += &line("metadata", &file(&shown.metadata_path, info.metadata_bytes));
        let metadata = shown.metadata.as_deref().unwrap_or("(no text)");
        text += &line("", &cut(metadata, METADATA_WIDTH));
    }
    text
}
