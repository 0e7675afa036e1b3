//! Puts each line of standard input into a queue, as the data of an entry; prints the entries' names.
//!
//!     printf '%s\n' one two | cargo run -p shiftspool --example put -- /tmp/spool mail

use std::error::Error;
use std::io;
use std::path::Path;

use shiftspool::{Item, Options, QueueName, Spool, time_ordered};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(queue)) = (arguments.next(), arguments.next()) else {
        return Err("usage: put SPOOL QUEUE".into());
    };
    let spool = Spool::create(Path::new(&path), Options::default())?;
    let queue = QueueName::new(queue)?;
    for line in io::stdin().lines() {
        let name = spool.enqueue(&queue, time_ordered, &Item::new("", line?))?;
        println!("{name}");
    }
    Ok(())
}
