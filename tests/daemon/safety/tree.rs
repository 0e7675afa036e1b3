//! All that is below a directory, to be compared with what is there later.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Each path with what is there: its kind, its owner, and what it holds.
pub fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    collect(root, &mut found);
    found
}

fn collect(directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let (kind, user) = (metadata.file_type(), metadata.uid());
        let what = if kind.is_symlink() {
            format!("link to {}", fs::read_link(&path).unwrap().display())
        } else if kind.is_file() {
            let mut content = DefaultHasher::new();
            fs::read(&path).unwrap().hash(&mut content);
            format!("file of {} bytes, {:x}", metadata.len(), content.finish())
        } else if kind.is_dir() {
            collect(&path, found);
            "directory".to_owned()
        } else {
            format!("pipe {}, socket {}", kind.is_fifo(), kind.is_socket())
        };
        found.insert(path, format!("{user} {what}"));
    }
}
