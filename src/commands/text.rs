//! Words that the commands' texts for people are made of. Pure.

use std::time::Duration;

/// A text from outside: control characters cannot move the cursor or forge lines.
pub fn shown(text: &str) -> String {
    text.chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect()
}

/// As [`shown`], of `width` characters at the most; `...` stands for the rest.
pub fn cut(text: &str, width: usize) -> String {
    // What does not fit is not gone through: it may be long.
    let begin: String = text.chars().take(width + 1).collect();
    let all = shown(&begin);
    if all.chars().count() <= width {
        return all;
    }
    all.chars().take(width.saturating_sub(3)).chain("...".chars()).collect()
}

/// `3m 20s`: a number of seconds in its two largest units.
pub fn span(seconds: i64) -> String {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let text = humantime::format_duration(Duration::from_secs(seconds)).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// `3m 20s ago`.
pub fn ago(seconds: i64) -> String {
    if seconds <= 0 { "just now".to_owned() } else { format!("{} ago", span(seconds)) }
}

/// `1 job`, `2 jobs`.
pub fn counted(count: impl Into<i64>, noun: &str) -> String {
    let count = count.into();
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A name and what is there under it, as one line.
pub fn line(name: &str, value: &str) -> String {
    format!("{name:<16}{value}\n")
}

/// Rows of cells in columns as wide as they need to be, the first one being the head.
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut out = String::new();
    for row in rows {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        out.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text is cut to its width, escapes included.
    #[test]
    fn texts_are_cut() {
        assert_eq!(cut("payload", 7), "payload");
        assert_eq!(cut("payloads", 7), "payl...");
        assert_eq!(cut("\u{1b}[2J", 7), "\\u{1...");
        assert_eq!(cut(&"é".repeat(9), 7), "éééé...");
    }
}
