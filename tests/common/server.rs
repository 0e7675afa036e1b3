//! A database on a PostgreSQL server, for one site: where `SHIFTBOSS_TEST_POSTGRES` names a server, the daemon's tests keep
//! their queues there (tests/postgres.sh), but for those that are about SQLite's files.

use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the tests look at, as for a file.
const SEEN: &str = include_str!("seen_on_server.sql");
pub const VARIABLE: &str = "SHIFTBOSS_TEST_POSTGRES";

/// Dropped with its database.
pub struct Database {
    name: String,
}

impl Database {
    /// `None`: this run of the tests is about files.
    pub fn new() -> Option<Self> {
        std::env::var_os(VARIABLE)?;
        static DATABASES: AtomicU32 = AtomicU32::new(0);
        let number = DATABASES.fetch_add(1, Ordering::Relaxed);
        let database = Self { name: format!("site_{}_{number}", std::process::id()) };
        admin(&format!("CREATE DATABASE {} TEMPLATE template0 LC_COLLATE 'C'", database.name));
        Some(database)
    }

    pub fn url(&self) -> String {
        url_of(&self.name)
    }

    /// What a query returns on [`SEEN`]: a line a row, columns separated by `|`, NULL as `-`.
    pub fn rows(&self, query: &str) -> Result<Vec<String>, String> {
        let asked = self.psql("seen", query);
        let shown = if asked.status.success() {
            asked
        } else {
            self.psql("shiftboss", SEEN);
            self.psql("seen", query)
        };
        if !shown.status.success() {
            return Err(String::from_utf8_lossy(&shown.stderr).into_owned());
        }
        let shown = String::from_utf8(shown.stdout).unwrap();
        Ok(shown.split_terminator('\0').map(str::to_owned).collect())
    }

    /// What the tables themselves say, as [`rows`](Self::rows) shows it, in lines.
    pub fn ask(&self, question: &str) -> String {
        let asked = self.psql("shiftboss", question);
        assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8(asked.stdout).unwrap().trim_end_matches('\0').replace('\0', "\n")
    }

    /// Runs statements as an administrator does.
    pub fn edit(&self, statements: &str) {
        let output = self.psql("shiftboss", statements);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Whether a query on the tables themselves says so.
    pub fn holds(&self, query: &str) -> bool {
        self.psql("shiftboss", query).stdout == b"t\0"
    }

    fn psql(&self, schema: &str, text: &str) -> Output {
        psql(&self.url(), schema, text)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        psql(&url_of("postgres"), "public", &format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// The URL of a database of the tests' server.
pub fn url_of(database: &str) -> String {
    let url = std::env::var(VARIABLE).expect("a server for tests: make test-postgres");
    let (server, parameters) = url.split_at(url.find('?').unwrap_or(url.len()));
    format!("{}/{database}{parameters}", server.trim_end_matches('/'))
}

/// Runs statements in the server's own database.
pub fn admin(statements: &str) {
    let output = psql(&url_of("postgres"), "public", statements);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Rows end with a NUL, which no text has.
fn psql(url: &str, schema: &str, text: &str) -> Output {
    let mut command = Command::new("psql");
    command.env("PGOPTIONS", format!("-c search_path={schema} -c client_min_messages=warning"));
    command.args(["-XqAt0", "-F", "|", "-P", "null=-", "-v", "ON_ERROR_STOP=1", "-c", text, url]);
    command.output().expect("psql is installed with the server")
}
