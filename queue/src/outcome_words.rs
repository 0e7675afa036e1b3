//! How attempts ended, in the words of a task's life cycle. For stores, and for commands that show it.

use crate::attempt::Outcome;

/// A shell's exit code for a signal is the signal's number plus this.
const SIGNALS: i64 = 128;

const SIGNAL_NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

pub fn of_code(exit_code: i64) -> &'static str {
    Outcome::of(exit_code).word()
}

pub fn known(word: &str) -> Option<&'static str> {
    Outcome::of_word(word).map(Outcome::word)
}

/// The signal that an exit code stands for, without `SIG`.
fn signal(exit_code: i64) -> Option<&'static str> {
    let number = exit_code.checked_sub(SIGNALS + 1)?;
    SIGNAL_NAMES.get(usize::try_from(number).ok()?).copied()
}

/// An end in words: `success`, `timeout`, `failure 1`, `failure SEGV`.
pub fn in_words(outcome: &str, exit_code: Option<i64>) -> String {
    match exit_code {
        Some(code) if outcome == "failure" => match signal(code) {
            Some(signal) => format!("failure {signal}"),
            None => format!("failure {code}"),
        },
        _ => outcome.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_words() {
        let words_of = |code| in_words(of_code(code), Some(code));
        let codes = [0, 1, 124, 127, 128, 137, 139, 143, 255, -1, i64::MIN];
        let words = [
            "success",
            "failure 1",
            "timeout",
            "failure 127",
            "failure 128",
            "failure KILL",
            "failure SEGV",
            "failure TERM",
            "failure 255",
            "failure -1",
            "failure -9223372036854775808",
        ];
        assert_eq!(codes.map(words_of), words);
        assert_eq!(in_words("expired", None), "expired");
    }
}
