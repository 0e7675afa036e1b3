//! What commands say, for tests that look at it.

use std::process::Output;

use serde_json::Value;

use crate::common::Site;

/// Standard output of a command that went well.
pub fn text(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
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
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}
