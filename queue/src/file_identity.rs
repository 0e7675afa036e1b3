//! The identity of files and directories across restarts, and how far a file was read. Plain values.
//!
//! Made by the readers of the input directory, kept by the store.

use serde::{Deserialize, Serialize};

/// The identity of a directory, across restarts and mounts. Device and inode numbers can be reused, so the creation
/// time counts, too, if the file system knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryIdentity {
    pub device: u64,
    pub inode: u64,
    /// When it was made, in nanoseconds since 1970.
    pub born: Option<i64>,
}

impl DirectoryIdentity {
    /// Whether both are the same directory, as far as is known.
    pub fn is_same(&self, other: &Self) -> bool {
        let born = self.born.zip(other.born).is_none_or(|(one, another)| one == another);
        (self.device, self.inode) == (other.device, other.inode) && born
    }
}

/// How far a run's file has been read. Stored in the transaction of the rows it counts, so a
/// restart goes on exactly where the queue stands (spec 4, "At start").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Position {
    /// Bytes read; always up to a line's end, or the end of a complete file.
    pub offset: u64,
    /// Lines read, so that warnings go on with the right number.
    pub lines: u64,
    pub device: u64,
    pub inode: u64,
    /// Checksum of the (up to) 4 KiB before `offset`; detects a file that was made anew.
    pub checksum: u64,
    /// Digest of all lines up to `offset`, as they were read; `None`: not known.
    pub content: Option<u64>,
    /// The file's times when it had rested and held exactly these lines; `None`: not verified yet.
    pub verified: Option<FileTimes>,
}

impl Position {
    pub fn text(&self) -> String {
        // Plain numbers.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// `None`: not written by any build of this version.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// When a file was changed last, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileTimes {
    /// Its content. Any process may set it.
    pub modified: i64,
    /// Its content, rights or names. Only the kernel sets it.
    pub changed: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A time that one side does not know is not compared.
    #[test]
    fn a_directory_is_known_by_what_is_known_of_it() {
        let full = DirectoryIdentity { device: u64::MAX, inode: 2, born: Some(-7) };
        let bare = DirectoryIdentity { born: None, ..full };
        assert!(full.is_same(&full) && full.is_same(&bare) && bare.is_same(&full));
        for other in [
            DirectoryIdentity { device: 1, ..full },
            DirectoryIdentity { inode: 3, ..full },
            DirectoryIdentity { born: Some(8), ..full },
        ] {
            assert!(!full.is_same(&other), "{other:?}");
        }
    }

    #[test]
    fn a_position_is_kept_as_text() {
        let verified = Some(FileTimes { modified: i64::MIN, changed: 1 });
        let position = Position { checksum: u64::MAX, verified, ..Position::default() };
        for position in [position, Position::default()] {
            assert_eq!(Position::parse(&position.text()), Some(position));
        }
        assert_eq!(Position::parse("12"), None);
    }
}
