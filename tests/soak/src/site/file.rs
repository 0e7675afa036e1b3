//! A queue in a file, and one daemon at full load on it: `make soak`. The daemon of [`broker`](super::broker) may have such a file, too.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};

use super::{Daemon, Hub, Site, unsound};

/// What must be true of it, and gives 0 then.
const SOUND: [(&str, &str); 5] = [
    ("rows are left undispatched", "SELECT count(*) FROM queue WHERE is_dequeued = 0"),
    ("attempts have no end", "SELECT count(*) FROM keys WHERE attempt IS NOT NULL"),
    (
        "runs are counted wrongly",
        "SELECT count(*) FROM counts WHERE fetcher > 0 AND (counts.rows, waiting) IS NOT (
            SELECT count(*), coalesce(sum(is_dequeued = 0), 0) FROM queue
            WHERE fetcher_id = counts.fetcher AND fetcher_run_started = counts.run)",
    ),
    (
        "relays are lost",
        "SELECT count(*) FROM documents WHERE name LIKE 'relay/%' AND value ->> 'gone' IS NOT NULL",
    ),
    (
        "pages are damaged",
        "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
    ),
];

/// Where it is.
pub struct File(pub PathBuf);

pub fn site(program: &Path) -> io::Result<Site> {
    let home = tempfile::tempdir()?;
    let arguments = ["serve", "state.db", "input", "socket"].map(str::to_owned).to_vec();
    let daemon = Daemon::new("daemon", program, home.path(), None, arguments, None)?;
    let hub = Box::new(File(home.path().join("daemon/state.db")));
    Ok(Site { daemons: vec![daemon], hub, _home: home })
}

impl File {
    fn open(&self) -> rusqlite::Result<Connection> {
        Connection::open_with_flags(&self.0, OpenFlags::SQLITE_OPEN_READ_ONLY)
    }

    fn read_log(&self) -> rusqlite::Result<Vec<(String, Option<i64>)>> {
        let file = self.open()?;
        let mut log = file.prepare("SELECT attr_path, exit_code FROM log")?;
        let rows = log.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        rows.collect()
    }
}

impl Hub for File {
    fn left(&self) -> io::Result<Vec<String>> {
        let file = self.open().map_err(io::Error::other)?;
        unsound(&SOUND, |sql| {
            let count = file.query_row(sql, [], |row| row.get::<_, i64>(0));
            count.map(|count| count.to_string()).map_err(io::Error::other)
        })
    }

    fn logged(&self) -> io::Result<Vec<(String, Option<i64>)>> {
        self.read_log().map_err(io::Error::other)
    }
}
