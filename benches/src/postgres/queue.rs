//! A queue that was loaded once, and is measured many times: each time daemons are started on a copy of its database.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Stage;
use super::database::{Client, Database};
use crate::load::{self, Load, Plan};
use crate::servers::{Server, new_home};

/// Jobs after which a daemon's connection has its plans, and caches are warm.
const WARM_UP: usize = 300;

/// A queue at rest, and the home of the daemon that has its list.
pub struct Queue {
    home: TempDir,
    database: Database,
    /// How long its list took.
    pub loaded_in: Duration,
}

impl Queue {
    /// Loads a list of so many lines.
    pub fn load(stage: &Stage, name: &str, lines: usize) -> io::Result<Self> {
        let (home, database) = (new_home()?, stage.cluster.database(name, None)?);
        let mut server = daemon(stage, &home, &database, "one")?;
        let begun = Instant::now();
        server.fill(lines)?;
        let loaded_in = begun.elapsed();
        server.stop()?;
        database.connect()?.settle()?;
        Ok(Self { home, database, loaded_in })
    }

    /// Its list.
    pub fn list(&self) -> PathBuf {
        self.home.path().join("input/bench.1.txt")
    }

    /// Daemons on a copy of it: the first one has the list.
    pub fn daemons(&self, stage: &Stage, count: usize) -> io::Result<Daemons> {
        let database = stage.cluster.database("copy", Some(&self.database))?;
        let mut servers = vec![daemon(stage, &self.home, &database, "one")?];
        let mut homes = Vec::new();
        for number in 1..count {
            let home = new_home()?;
            servers.push(daemon(stage, &home, &database, &format!("other{number}"))?);
            homes.push(home);
        }
        Ok(Daemons { servers, _homes: homes, database })
    }
}

/// Starts a daemon with an input directory of its own.
pub fn daemon(
    stage: &Stage,
    home: &TempDir,
    database: &Database,
    name: &str,
) -> io::Result<Server> {
    Server::on_postgres(stage.program, home.path(), &database.url, name, &[])
}

/// Daemons that share a database. They are stopped before it is dropped.
pub struct Daemons {
    pub servers: Vec<Server>,
    _homes: Vec<TempDir>,
    database: Database,
}

impl Daemons {
    /// Workers, spread over the daemons, for so long or so many requests; first a few that do not count.
    pub fn drive(&self, workers: usize, time: Duration, requests: usize) -> io::Result<Load> {
        self.warm_up(workers, time)?;
        self.run(workers, time, requests)
    }

    pub fn warm_up(&self, workers: usize, time: Duration) -> io::Result<()> {
        self.run(workers, time, WARM_UP.max(workers * 4)).map(drop)
    }

    pub fn run(&self, workers: usize, time: Duration, requests: usize) -> io::Result<Load> {
        load::run(&Plan {
            requests,
            ..Plan::at(
                self.servers.iter().map(|server| server.socket.clone()).collect(),
                self.servers[0].protocol,
                workers,
                time,
            )
        })
    }

    pub fn connect(&self) -> io::Result<Client> {
        self.database.connect()
    }

    /// Jobs that a call to the server ended, on average.
    pub fn batch(&self) -> io::Result<f64> {
        let sql = "SELECT count(*)::float8 / count(DISTINCT xmin::text) FROM shiftboss.attempts";
        self.connect()?.value(sql)
    }
}
