//! `shiftspool put`: one entry from a file or standard input, or one for each line of it.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;

use shiftboss_console::exit::{ExitCode, Failure};
use shiftboss_console::input;
use shiftboss_console::printing::print;

use super::cli::PutArguments;
use crate::{DATA_BYTES_MAX, EntryName, Item, METADATA_BYTES_MAX, Spool, SpoolError, time_ordered};

const PIECE_BYTES: usize = 1024 * 1024;
/// Most lines, and bytes of lines, that are synced together: they are kept in memory until then.
const BATCH_LINES_MAX: usize = 100_000;
const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

pub fn run(spool: &Spool, typed: PutArguments) -> Result<(), Failure> {
    let (source, input) = input::open(typed.file.as_deref());
    let input = input.map_err(|error| {
        Failure::new(ExitCode::BadData, format!("cannot open {source}: {error}; nothing is put"))
    })?;
    let mut input = BufReader::with_capacity(PIECE_BYTES, input);
    if typed.lines || typed.meta_lines {
        return put_lines(spool, &typed, &mut input, &source);
    }
    let (queue, metadata) = (typed.place.queue, typed.meta.as_bytes());
    // Read to the end before a name is reserved: the data may come slowly.
    let draft = spool.draft(&mut input).map_err(|error| match error {
        SpoolError::Unread(error) => {
            let message = format!("cannot read {source}: {error}; nothing is put");
            Failure::new(ExitCode::BadData, message)
        }
        error => error.into(),
    })?;
    let reservation = match typed.name {
        Some(name) => spool.reserve_name(name),
        None => spool.reserve(time_ordered),
    };
    let name =
        reservation.and_then(|reserved| spool.enqueue_draft(&queue, reserved, metadata, draft));
    print_names(&[name?])
}

/// The next lines to put together, each of at most `bytes_max` bytes and one more; none at the end.
fn batch(input: &mut dyn BufRead, bytes_max: u64) -> io::Result<Vec<Vec<u8>>> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    while lines.len() < BATCH_LINES_MAX && bytes < BATCH_BYTES_MAX {
        let mut line = Vec::new();
        if Read::take(&mut *input, bytes_max + 1).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        line.pop_if(|end| *end == b'\n');
        bytes += line.len();
        lines.push(line);
    }
    Ok(lines)
}

fn put_lines(
    spool: &Spool,
    typed: &PutArguments,
    input: &mut dyn BufRead,
    source: &str,
) -> Result<(), Failure> {
    let bytes_max = if typed.lines { DATA_BYTES_MAX } else { METADATA_BYTES_MAX };
    let item = |line| match typed.lines {
        true => Item::new(typed.meta.as_bytes(), line),
        false => Item::new(line, ""),
    };
    let mut put = 0;
    loop {
        let lines = batch(input, bytes_max).map_err(|error| {
            let message = format!("cannot read {source}: {error}; {put} lines of it are put");
            Failure::new(ExitCode::BadData, message)
        })?;
        if lines.is_empty() {
            return Ok(());
        }
        let items: Vec<Item> = lines.into_iter().map(item).collect();
        match spool.enqueue_batch(&typed.place.queue, time_ordered, &items) {
            Ok(names) => {
                put += names.len();
                print_names(&names)?;
            }
            Err(error) => {
                if let SpoolError::Batch(published, ..) = &error {
                    put += published.len();
                    print_names(published)?;
                }
                let message = format!("{error}; {put} lines of {source} are put");
                return Err(Failure::new(super::code(&error), message));
            }
        }
    }
}

/// Prints names. It does not matter whether they are read: the entries are there.
fn print_names(names: &[EntryName]) -> Result<(), Failure> {
    print(names.iter().map(|name| format!("{name}\n")).collect::<String>())
}
