//! What commands say, for tests that look at it.

use std::process::Output;

use serde_json::Value;

use crate::common::Site;

/// Standard output of a command that goes well.
pub fn said(site: &Site, arguments: &[&str]) -> String {
    let output = site.run(arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

pub fn object(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Exit code and standard error of a command that fails, and prints nothing.
pub fn failure(output: &Output) -> (i32, String) {
    assert_eq!(&output.stdout[..], b"");
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}
