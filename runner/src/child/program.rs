//! Looks for a program before it is needed, where its execution would find it. So a mistyped name is reported at once,
//! not as the failure of the first job.
//!
//! It only checks the present. A program can vanish later, and an interpreter can be missing: only the start shows
//! whether it works.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::end::StartError;

/// Where programs are looked for without a PATH, as in the C library.
const PATH_DEFAULT: &str = "/bin:/usr/bin";

/// Looks for `program` as its execution does: in our PATH, unless it has a slash.
pub fn look_for(program: &OsStr) -> Result<(), StartError> {
    let path = env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
    look_for_in(program, &path)
}

/// The same with another PATH: that of the program's own environment.
pub fn look_for_in(program: &OsStr, path: &OsStr) -> Result<(), StartError> {
    let found = first_of(candidates(program, Some(path)));
    found.map_err(|error| StartError::of(program, error.into()))
}

/// Where a program may be: its own path if it has a slash, else in each directory of a PATH.
pub(super) fn candidates(program: &OsStr, path: Option<&OsStr>) -> Vec<OsString> {
    if program.as_bytes().contains(&b'/') {
        return vec![program.to_owned()];
    }
    let path = path.unwrap_or(OsStr::new(PATH_DEFAULT));
    let directories = env::split_paths(path).filter(|_| !program.is_empty());
    // An empty one is the working directory, in which an empty path joined is.
    directories.map(|directory| directory.join(program).into_os_string()).collect()
}

/// A file that cannot be executed is passed over, and is the error if nothing else is found.
fn first_of(candidates: Vec<OsString>) -> Result<(), Errno> {
    let mut reason = Errno::NOENT;
    for candidate in candidates {
        match can_execute(Path::new(&candidate)) {
            Ok(()) => return Ok(()),
            Err(error) if reason != Errno::ACCESS => reason = error,
            Err(_) => {}
        }
    }
    Err(reason)
}

fn can_execute(path: &Path) -> Result<(), Errno> {
    access(path, Access::EXEC_OK)?;
    // The execute permission of a directory means something else.
    if path.is_file() { Ok(()) } else { Err(Errno::ACCESS) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn code(found: Result<(), StartError>) -> u8 {
        found.err().map_or(0, |error| error.shell_code())
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        for (program, expected) in [
            (OsStr::new("sh"), 0),
            (OsStr::new("/bin/sh"), 0),
            (OsStr::new("no-such-program"), 127),
            (OsStr::new(""), 127),
            (OsStr::new("/nowhere/program"), 127),
            (OsStr::new("/etc/passwd/program"), 127),
            (OsStr::new("/etc/passwd"), 126),
            (directory.path().as_os_str(), 126),
            (file.as_os_str(), 127),
        ] {
            assert_eq!(code(look_for(program)), expected, "{}", program.display());
        }
        std::fs::write(&file, "").unwrap();
        assert_eq!(code(look_for(file.as_os_str())), 126);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(code(look_for(file.as_os_str())), 0);
    }

    /// The first one that can be executed counts, in whatever directory.
    #[test]
    fn what_cannot_be_executed_is_passed_over() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (first, second) = (one.path().join("program"), two.path().join("program"));
        let path = env::join_paths([one.path(), two.path()]).unwrap();
        let look = || look_for_in(OsStr::new("program"), &path);
        assert_eq!(code(look()), 127);
        std::fs::write(&first, "").unwrap();
        assert_eq!(code(look()), 126);
        std::fs::write(&second, "").unwrap();
        std::fs::set_permissions(&second, PermissionsExt::from_mode(0o700)).unwrap();
        assert_eq!(code(look()), 0);
    }
}
