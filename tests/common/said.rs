//! What commands say, for tests that look at it.

use std::process::Output;

use serde_json::Value;

use super::Site;

/// Standard output of a command that went well.
pub fn text(output: &Output) -> String {
    let (code, stdout, stderr) = told(output);
    assert_eq!(code, 0, "{stderr}");
    stdout
}

/// The same of one that is run.
pub fn said(site: &Site, arguments: &[&str]) -> String {
    text(&site.run(arguments))
}

/// The object that it prints with `--json`, and nothing else.
pub fn json(site: &Site, arguments: &[&str]) -> Value {
    let output = site.run(&[&[arguments[0], "--json"], &arguments[1..]].concat());
    let object = object(&text(&output));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    object
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

/// How a command ended, and all that it said.
pub fn all_said(output: &Output) -> (i32, String) {
    let (code, stdout, stderr) = told(output);
    (code, stdout + &stderr)
}

/// How a command ended, its standard output, and its standard error.
pub fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}
