//! Waits for entries of a queue, and prints the data of each. It ends when none has come for ten seconds.
//!
//!     cargo run -p shiftspool --example take -- /tmp/spool mail

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use shiftspool::{Guard, Options, Order, QueueName, Spool, Stop};

fn work(guard: &Guard) -> Result<(), Box<dyn Error>> {
    let data = guard.data().load()?;
    writeln!(io::stdout(), "{}: {}", guard.name(), String::from_utf8(data)?)?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(queue)) = (arguments.next(), arguments.next()) else {
        return Err("usage: take SPOOL QUEUE".into());
    };
    // After three attempts an entry goes to the queue `dead-letter`.
    let options = Options { attempts_max: Some(3), ..Options::default() };
    let spool = Spool::create(Path::new(&path), options)?;
    let mut reader = spool.reader(&QueueName::new(queue)?, Order::Strict)?;
    let stop = Stop::new()?;
    while let Some(guard) = reader.dequeue(&stop, Some(Duration::from_secs(10)))? {
        match work(&guard) {
            Ok(()) => guard.complete()?,
            Err(error) => {
                eprintln!("{}, attempt {}: {error}", guard.name(), guard.attempt());
                guard.retry_after(Duration::from_secs(1))?;
            }
        }
    }
    Ok(())
}
