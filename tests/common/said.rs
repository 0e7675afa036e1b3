//! What commands say, for tests that look at it.

use std::process::Output;

use serde_json::Value;

use super::Site;

/// Standard output of a command that goes well.
pub fn said(site: &Site, arguments: &[&str]) -> String {
    let (code, stdout, stderr) = told(&site.run(arguments));
    assert_eq!(code, 0, "{arguments:?}: {stderr}");
    stdout
}

pub fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Exit code and standard error of a command that fails, and prints nothing.
pub fn failure(output: &Output) -> (i32, String) {
    assert_eq!(&output.stdout[..], b"");
    code_and_error(output)
}

/// How a command ended, and what it said of that.
pub fn code_and_error(output: &Output) -> (i32, String) {
    let (code, _, stderr) = told(output);
    (code, stderr)
}

/// How a command ended, its standard output, and its standard error.
pub fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}
