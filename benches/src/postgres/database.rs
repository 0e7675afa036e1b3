//! The PostgreSQL server: databases that are made from each other, and statements that a benchmark sends itself.
//!
//! Called by the groups of rows. A database is dropped with its value.

use std::io;
use std::time::Duration;

use shiftboss_testbed::far::Far;
use tokio::runtime::Runtime;
use tokio_postgres::{NoTls, Row};

/// The server's settings on which the figures depend.
const SETTINGS: &[&str] =
    &["fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size"];

/// A server on which databases may be made.
pub struct Cluster {
    url: String,
    /// The way of those that are measured.
    way: String,
    admin: Client,
}

impl Cluster {
    /// With a round trip of its own for those that are measured, unless that is zero.
    pub fn new(url: &str, round_trip: Duration) -> io::Result<Self> {
        let url = url.trim_end_matches('/').to_owned();
        let admin = Client::connect(&format!("{url}/postgres"))?;
        let way = if round_trip.is_zero() {
            url.clone()
        } else {
            let far = Far::new(&format!("{url}/postgres"), round_trip)?;
            let role: String = admin.value("SELECT current_user::text")?;
            format!("postgres://{role}@{}", far.address)
        };
        Ok(Self { url, way, admin })
    }

    /// What is measured on, in one line.
    pub fn settings(&self) -> io::Result<String> {
        let version: String = self.admin.value("SHOW server_version")?;
        let mut told = format!("PostgreSQL {version}");
        for name in SETTINGS {
            let value: String = self.admin.value(&format!("SHOW {name}"))?;
            told += &format!(", {name} {value}");
        }
        Ok(told + ".")
    }

    /// A database, empty or a copy of another one that nobody uses.
    pub fn database(&self, name: &str, template: Option<&Database>) -> io::Result<Database> {
        let template = template.map_or("template0", |database| &database.name);
        self.admin.run(&format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"))?;
        self.admin
            .run(&format!("CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"))?;
        let (url, direct) = (format!("{}/{name}", self.way), format!("{}/{name}", self.url));
        let admin = Client::connect(&format!("{}/postgres", self.url))?;
        Ok(Database { name: name.to_owned(), url, direct, admin })
    }
}

/// Dropped with its value.
pub struct Database {
    name: String,
    /// As a daemon reaches it.
    pub url: String,
    direct: String,
    admin: Client,
}

impl Database {
    pub fn connect(&self) -> io::Result<Client> {
        Client::connect(&self.direct)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // What stays is in a server that goes, too.
        let _ = self.admin.run(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// A connection that waits for each answer.
pub struct Client {
    pub runtime: Runtime,
    pub client: tokio_postgres::Client,
}

impl Client {
    pub fn connect(url: &str) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let connected = runtime.block_on(tokio_postgres::connect(url, NoTls));
        let (client, connection) = connected.map_err(|error| failed(&error))?;
        runtime.spawn(connection);
        Ok(Self { runtime, client })
    }

    /// Runs statements.
    pub fn run(&self, sql: &str) -> io::Result<()> {
        let ran = self.runtime.block_on(self.client.batch_execute(sql));
        ran.map_err(|error| failed(&error))
    }

    /// What was loaded lies as it would after a while.
    pub fn settle(&self) -> io::Result<()> {
        self.run("VACUUM ANALYZE")?;
        self.run("CHECKPOINT")
    }

    pub fn row(&self, sql: &str) -> io::Result<Row> {
        self.runtime.block_on(self.client.query_one(sql, &[])).map_err(|error| failed(&error))
    }

    /// The only value of the only row.
    pub fn value<T: for<'a> tokio_postgres::types::FromSql<'a>>(&self, sql: &str) -> io::Result<T> {
        self.row(sql)?.try_get(0).map_err(|error| failed(&error))
    }
}

/// With the server's words, which the error itself does not show.
pub fn failed(error: &tokio_postgres::Error) -> io::Error {
    let words = error.as_db_error().map(|told| told.message().to_owned());
    io::Error::other(words.unwrap_or_else(|| error.to_string()))
}
