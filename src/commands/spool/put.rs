//! `shiftboss spool put`: one entry from a file or standard input, or one for each line of it.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{failure, print};
use crate::cli::PutArguments;
use crate::exit::{ExitCode, Failure};
use shiftboss_spool::{
    DATA_BYTES_MAX, EntryName, Item, METADATA_BYTES_MAX, QueueName, Spool, SpoolError, time_ordered,
};

/// What is read at a time.
const PIECE_BYTES: usize = 1024 * 1024;
/// Lines that are synced together, at most, and their bytes: they are kept in memory so long.
const BATCH_LINES_MAX: usize = 100_000;
const BATCH_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Puts what was typed, and prints the names.
pub fn run(spool: &Spool, typed: PutArguments) -> Result<(), Failure> {
    let (queue, metadata) = (typed.place.queue, typed.meta.as_bytes());
    let (source, mut input) = input(typed.file.as_deref())?;
    if typed.lines {
        let item = |line| Item::new(metadata, line);
        return put_lines(spool, &queue, (DATA_BYTES_MAX, &item), &mut input, &source);
    }
    if typed.meta_lines {
        let item = |line| Item::new(line, "");
        return put_lines(spool, &queue, (METADATA_BYTES_MAX, &item), &mut input, &source);
    }
    // Read to the end before a name is taken: it may come slowly.
    let draft = spool.draft(&mut input).map_err(|error| match error {
        SpoolError::Unread(error) => {
            let message = format!("cannot read {source}: {error}; nothing is put");
            Failure::new(ExitCode::BadData, message)
        }
        error => failure(error),
    })?;
    let reservation = match typed.name {
        Some(name) => spool.reserve_name(name),
        None => spool.reserve(time_ordered),
    };
    let name =
        reservation.and_then(|reserved| spool.enqueue_draft(&queue, reserved, metadata, draft));
    print_names(&[name.map_err(failure)?])
}

/// What is read, with a name for it.
fn input(file: Option<&Path>) -> Result<(String, Box<dyn BufRead>), Failure> {
    let Some(path) = file else {
        let input = BufReader::with_capacity(PIECE_BYTES, io::stdin().lock());
        return Ok(("standard input".to_owned(), Box::new(input)));
    };
    match File::open(path) {
        Ok(file) => {
            Ok((path.display().to_string(), Box::new(BufReader::with_capacity(PIECE_BYTES, file))))
        }
        Err(error) => {
            let message = format!("cannot open {}: {error}; nothing is put", path.display());
            Err(Failure::new(ExitCode::BadData, message))
        }
    }
}

/// How long a line may be, and what entry one is.
type Lines<'a> = (u64, &'a dyn Fn(Vec<u8>) -> Item);

/// The next lines that are put together; none at the end.
fn batch(input: &mut dyn BufRead, (bytes_max, item): Lines<'_>) -> io::Result<Vec<Item>> {
    let (mut items, mut bytes) = (Vec::new(), 0);
    while items.len() < BATCH_LINES_MAX && bytes < BATCH_BYTES_MAX {
        let mut line = Vec::new();
        if Read::take(&mut *input, bytes_max + 1).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.last() == Some(&b'\n') {
            line.pop();
        }
        bytes += line.len();
        items.push(item(line));
    }
    Ok(items)
}

fn put_lines(
    spool: &Spool,
    queue: &QueueName,
    lines: Lines<'_>,
    input: &mut dyn BufRead,
    source: &str,
) -> Result<(), Failure> {
    let mut put = 0;
    loop {
        let items = batch(input, lines).map_err(|error| {
            let message = format!("cannot read {source}: {error}; {put} lines of it are put");
            Failure::new(ExitCode::BadData, message)
        })?;
        if items.is_empty() {
            return Ok(());
        }
        match spool.enqueue_batch(queue, time_ordered, &items) {
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

/// Prints names. Nobody needs to read them: the entries are there.
fn print_names(names: &[EntryName]) -> Result<(), Failure> {
    print(&names, false, |names| names.iter().map(|name| format!("{name}\n")).collect()).map(drop)
}
