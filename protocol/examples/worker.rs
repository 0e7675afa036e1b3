//! A worker: prints each job, and ends when none has come for ten seconds.
//!
//!     cargo run -p shiftboss-protocol --example worker -- /run/shiftboss/worker.sock

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use shiftboss_protocol::client::Worker;

fn main() -> Result<(), Box<dyn Error>> {
    let socket = std::env::args().nth(1).ok_or("usage: worker SOCKET")?;
    let mut worker = Worker::connect(Path::new(&socket), "example", 60)?;
    while let Ok(job) = worker.next(Duration::from_secs(10))? {
        println!("{} {}", job.shown_key(), String::from_utf8_lossy(&job.payload));
        // If the work may take longer than the lease, call worker.beat(attempt, wait) every few seconds.
        if let Some(attempt) = job.attempt {
            worker.done(attempt, 0)?;
        }
    }
    Ok(())
}
