//! graphile-worker with jobs that do nothing: benches/graphile-worker/worker.js.
//!
//! Its rate is that of the rows that leave its table: it says that a job is complete before it has written so.

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::Stage;
use super::database::{Client, Database};

/// Jobs are added with its own function, so many in a call.
const ADDED_AT_ONCE: usize = 10_000;
const JOBS: &str = "SELECT count(*) FROM graphile_worker._private_jobs";
const WARM_UP: i64 = 300;
/// A process of Node takes so long to start at most.
const PATIENCE: Duration = Duration::from_secs(30);
const GLANCE: Duration = Duration::from_millis(20);

/// What its package says, and what runs it.
pub fn version(installed: &Path) -> String {
    let package = installed.join("node_modules/graphile-worker/package.json");
    let read = || serde_json::from_slice::<serde_json::Value>(&fs::read(package).ok()?).ok();
    let node = || Command::new("node").arg("--version").output().ok();
    match (read(), node()) {
        (Some(package), Some(node)) => {
            let version = package["version"].as_str().unwrap_or_default();
            format!(
                "graphile-worker {version}, Node {}",
                String::from_utf8_lossy(&node.stdout).trim()
            )
        }
        _ => "graphile-worker missing".to_owned(),
    }
}

/// Its jobs, at rest.
pub struct Graphile {
    database: Database,
}

impl Graphile {
    /// `None`: it is not installed.
    pub fn load(stage: &Stage) -> io::Result<Option<Self>> {
        if !stage.setting.graphile.join("node_modules/graphile-worker").exists() {
            return Ok(None);
        }
        let database = stage.cluster.database("graphile", None)?;
        let mut migration = start(stage, &database, 0, 0)?;
        if !migration.0.wait()?.success() {
            return Err(io::Error::other("graphile-worker did not make its schema"));
        }
        let client = database.connect()?;
        for from in (0..stage.setting.jobs).step_by(ADDED_AT_ONCE) {
            client.run(&format!(
                "SELECT count(*) FROM graphile_worker.add_jobs(ARRAY(SELECT json_populate_record(
                    NULL::graphile_worker.job_spec, json_build_object('identifier', 'nothing', 'payload',
                        json_build_object('key', n))) FROM generate_series({from}, {}) AS n))",
                stage.setting.jobs.min(from + ADDED_AT_ONCE) - 1
            ))?;
        }
        client.settle()?;
        Ok(Some(Self { database }))
    }

    /// Jobs a second on a copy of it.
    pub fn rate(&self, stage: &Stage, concurrency: usize, queue: usize) -> io::Result<f64> {
        let database = stage.cluster.database("copy", Some(&self.database))?;
        let client = database.connect()?;
        let jobs: i64 = client.value(JOBS)?;
        let mut worker = start(stage, &database, concurrency, queue)?;
        let since = Instant::now();
        while client.value::<i64>(JOBS)? > jobs - WARM_UP {
            if since.elapsed() > PATIENCE || worker.0.try_wait()?.is_some() {
                return Err(io::Error::other("graphile-worker does not work"));
            }
            std::thread::sleep(GLANCE);
        }
        rate(&client, Duration::from_secs(stage.setting.seconds))
    }
}

fn rate(client: &Client, time: Duration) -> io::Result<f64> {
    let (before, begun): (i64, _) = (client.value(JOBS)?, Instant::now());
    std::thread::sleep(time);
    let elapsed = begun.elapsed();
    let after: i64 = client.value(JOBS)?;
    if after == 0 {
        return Err(io::Error::other("graphile-worker ran out of jobs: --jobs for more"));
    }
    Ok((before - after) as f64 / elapsed.as_secs_f64())
}

/// Ended with its value: its database goes with it.
struct Process(Child);

fn start(
    stage: &Stage,
    database: &Database,
    concurrency: usize,
    queue: usize,
) -> io::Result<Process> {
    Command::new("node")
        .current_dir(&stage.setting.graphile)
        .args(["worker.js", &database.url, &concurrency.to_string(), &queue.to_string()])
        .env("NO_LOG_SUCCESS", "1")
        .env("NODE_ENV", "production")
        .stdout(Stdio::null())
        .spawn()
        .map(Process)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
