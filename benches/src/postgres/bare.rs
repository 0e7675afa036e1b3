//! What the server does without a queue: a bare loop of two updates a job, and COPY of the lines into a table.
//!
//! The loop is the least that a claim and an end can be: one table, prepared statements, a transaction for the ends of a
//! batch and the claims of the next, sent at once. It keeps no order but that of its index, no log, no lease, and serves no
//! socket.

use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tokio_postgres::types::ToSql;

use super::database::{Client, Cluster, Database, failed};

const SCHEMA: &str = "CREATE TABLE job (id int8 PRIMARY KEY, payload text NOT NULL, started timestamptz, finished timestamptz)
        WITH (fillfactor = 70);
    CREATE INDEX ON job (id) WHERE started IS NULL;";
const CLAIM: &str = "UPDATE job SET started = now() WHERE id = ANY (ARRAY(
        SELECT id FROM job WHERE started IS NULL ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED)) RETURNING id, payload";
const END: &str = "UPDATE job SET finished = now() WHERE id = ANY ($1)";

/// The loop's jobs, at rest.
pub struct Bare {
    database: Database,
}

impl Bare {
    pub fn load(cluster: &Cluster, jobs: usize) -> io::Result<Self> {
        let database = cluster.database("bare", None)?;
        let client = database.connect()?;
        client.run(SCHEMA)?;
        client.run(&format!(
            "INSERT INTO job SELECT n, n || ' 1.0000 -> 2.0000' FROM generate_series(1, {jobs}) AS n"
        ))?;
        client.settle()?;
        Ok(Self { database })
    }

    /// Jobs a second of so many connections with batches of this size, on a copy of it.
    pub fn rate(
        &self,
        cluster: &Cluster,
        connections: usize,
        batch: i64,
        time: Duration,
    ) -> io::Result<f64> {
        let database = cluster.database("copy", Some(&self.database))?;
        let threads: Vec<_> = (0..connections)
            .map(|_| {
                database.connect().map(|client| thread::spawn(move || work(&client, batch, time)))
            })
            .collect::<io::Result<_>>()?;
        let mut rate = 0.0;
        for thread in threads {
            rate += thread.join().map_err(|_| io::Error::other("a loop panicked"))??;
        }
        Ok(rate)
    }
}

fn work(client: &Client, batch: i64, time: Duration) -> io::Result<f64> {
    let Client { runtime, client } = client;
    let looped = async {
        let (claim, end) = (client.prepare(CLAIM).await?, client.prepare(END).await?);
        let (begun, mut jobs, mut out) = (Instant::now(), 0, Vec::<i64>::new());
        while begun.elapsed() < time {
            let ends: [&(dyn ToSql + Sync); 1] = [&out];
            let claims: [&(dyn ToSql + Sync); 1] = [&batch];
            let (began, ended, claimed, committed) = tokio::join!(
                biased;
                client.batch_execute("BEGIN"),
                client.execute(&end, &ends),
                client.query(&claim, &claims),
                client.batch_execute("COMMIT"),
            );
            began?;
            jobs += ended?;
            committed?;
            out = claimed?.iter().map(|row| row.get(0)).collect();
        }
        Ok::<f64, tokio_postgres::Error>(jobs as f64 / begun.elapsed().as_secs_f64())
    };
    runtime.block_on(looped).map_err(|error| failed(&error))
}

/// Lines a second of COPY into a table of keys and payloads, in which no key comes twice.
pub fn copy_rate(cluster: &Cluster, list: &Path, lines: usize) -> io::Result<f64> {
    let database = cluster.database("bare", None)?;
    database
        .connect()?
        .run("CREATE TABLE line (key text PRIMARY KEY, old text, arrow text, new text)")?;
    let begun = Instant::now();
    let copy = format!("\\copy line FROM '{}' WITH (DELIMITER ' ')", list.display());
    let copied = Command::new("psql").args(["-Xq", "-c", &copy, &database.url]).output()?;
    let took = begun.elapsed();
    if !copied.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&copied.stderr).into_owned()));
    }
    Ok(lines as f64 / took.as_secs_f64())
}
