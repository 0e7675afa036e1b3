//! The tables of docs/ that man pages and the command reference repeat: exit codes, files. One text for both, so that
//! neither can say what the other does not.

/// The documents whose tables are read, and the headings that these stand under.
const EXIT_CODES: (&str, &str) = (include_str!("../../exit-codes.md"), "# Exit codes");
const FILES: (&str, &str) = (include_str!("../../operating.md"), "## Files");

/// A term and what it means.
pub type Entry = (String, String);

/// The exit codes of a command, such as `shiftspool put`; of all of them for a program itself.
pub fn exit_codes(command: &str) -> Vec<Entry> {
    collected(|of| is_of(of, command))
        .into_iter()
        .map(|(code, text)| (code, plain(&text)))
        .collect()
}

/// Those codes of a command that not every command has, as Markdown.
pub fn own_exit_codes(command: &str) -> Vec<Entry> {
    collected(|of| of != "all" && is_of(of, command))
}

/// The codes and meanings of the rows that are wanted; those of one code are joined.
fn collected(is_wanted: impl Fn(&str) -> bool) -> Vec<Entry> {
    let mut codes: Vec<Entry> = Vec::new();
    let mut code = String::new();
    for row in rows(EXIT_CODES) {
        let [first, of, meaning, ..] = row.as_slice() else { continue };
        if !first.is_empty() {
            code.clone_from(first);
        }
        if !is_wanted(of) {
            continue;
        }
        match codes.last_mut() {
            Some((last, text)) if *last == code => *text = format!("{text}; {meaning}"),
            _ => codes.push((code.clone(), meaning.clone())),
        }
    }
    codes
}

/// The files that a command has to do with: all of them `serve`.
pub fn files(command: &str) -> Vec<Entry> {
    let concerns = |row: &Vec<String>| {
        command == "serve" || row.iter().skip(1).any(|cell| cell.contains(&format!("`{command}`")))
    };
    let rows = rows(FILES).into_iter().filter(concerns);
    rows.filter_map(|row| Some((plain(row.first()?), plain(row.get(1)?)))).collect()
}

/// Whether a row is about a command. `broker` means all that begin so, and a program has the rows of its commands; flags do
/// not matter.
fn is_of(of: &str, command: &str) -> bool {
    let begins = |name: &str, with: &str| {
        name.strip_prefix(with).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    };
    let names = of.split('`').skip(1).step_by(2);
    let mut names = names.map(|name| name.split(" --").next().unwrap_or(name));
    match command {
        "" => !names.any(|name| begins(name, "shiftspool")),
        "shiftspool" => of.starts_with("all") || names.any(|name| begins(name, command)),
        _ => names.any(|name| begins(command, name)) != of.starts_with("all"),
    }
}

/// The cells of the table behind a heading, without its head.
fn rows((text, heading): (&str, &str)) -> Vec<Vec<String>> {
    let behind = text.split_once(&format!("{heading}\n")).map_or("", |(_, behind)| behind);
    let table = behind.lines().skip_while(|line| !line.starts_with('|'));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    let cells =
        |row: &str| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// Markdown's text alone.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let (name, behind) = link.split_once(']').unwrap_or((link, ""));
        out.push_str(before);
        out.push_str(name);
        rest = behind.split_once(')').map_or(behind, |(_, behind)| behind);
    }
    (out + rest).replace(['`', '*'], "")
}
