//! In a build without the feature `postgres`: each URL of a server is refused. In place of `server.rs`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use shiftboss_queue::reader::Reader;

use super::mark::Moved;
use super::{Joining, Left, Opened, Options, Url};
use crate::exit::{ExitCode, Failure};

fn refused<T>(url: &Url) -> Result<T, Failure> {
    let text = format!(
        "this shiftboss was built without PostgreSQL, and cannot use {url}: build it with the feature `postgres`, or \
         give a database in a file"
    );
    Err(Failure::new(ExitCode::Configuration, text))
}

pub(crate) fn check(url: &Url) -> Result<(), Failure> {
    refused(url)
}

pub(crate) fn migrate(url: &Url) -> Result<(), Failure> {
    refused(url)
}

pub(crate) fn forget_daemon(url: &Url, _: &str) -> Result<Left, Failure> {
    refused(url)
}

pub(super) fn open(url: &Url, _: &Options, _: &Joining) -> Result<Opened, Failure> {
    refused(url)
}

pub(super) fn reader(url: &Url) -> Result<Arc<dyn Reader>, Failure> {
    refused(url)
}

pub(super) fn glance(url: &Url, _: Duration) -> Result<Arc<dyn Reader>, Failure> {
    refused(url)
}

pub(crate) fn move_in(_: &Path, to: &Url, _: &str) -> Result<Vec<Moved>, Failure> {
    refused(to)
}

pub(crate) fn move_out(from: &Url, _: &Path) -> Result<Vec<Moved>, Failure> {
    refused(from)
}
