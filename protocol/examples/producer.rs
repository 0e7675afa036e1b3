//! A fetcher: puts a list of keys into a daemon's input directory, whole or not at all.
//!
//!     cargo run -p shiftboss-protocol --example producer -- INPUT_DIR NAME KEY...

use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::SystemTime;

use shiftboss_protocol::model::{Key, Run};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(input), Some(name)) = (arguments.next(), arguments.next()) else {
        return Err("usage: producer INPUT_DIR NAME KEY...".into());
    };
    // A later run replaces the earlier ones of its fetcher: their keys are due again.
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let run = Run { fetcher: name.into(), started: started.try_into()? };
    // The daemon does not read files whose names begin with a dot.
    let hidden = Path::new(&input).join(format!(".{}.new", run.file_name(false)));
    let mut list = File::create(&hidden)?;
    for key in arguments {
        writeln!(list, "{} listed at {started}", Key::new(&key)?)?;
    }
    list.sync_all()?;
    std::fs::rename(hidden, Path::new(&input).join(run.file_name(false)))?;
    Ok(())
}
