//! Style as a test: what a reader may count on in every source file, and the one-way arrows
//! between the parts (docs/architecture.md, "invariants").

use std::fs;
use std::path::{Path, PathBuf};

/// Most lines of a function, from `fn` to its closing brace.
const FUNCTION_LINES: usize = 70;
/// Most lines of a file before its tests: a flat list of cases has as many as it has.
const FILE_LINES: usize = 800;
/// A file says what it is within so many lines.
const DOC_LINES: usize = 5;
/// Where product code is.
const ROOTS: [&str; 10] = [
    "src",
    "actors/src",
    "console/src",
    "protocol/src",
    "queue/src",
    "relay/src",
    "runner/src",
    "spool/src",
    "stores/postgres/src",
    "stores/sqlite/src",
];

/// The files whose path begins so must not say any of these words (comments aside).
const ARROWS: &[(&str, &[&str])] = &[
    ("actors/src/", &["rusqlite", "clap"]),
    ("protocol/src", &["actix", "tokio::", "rusqlite", "clap", "shiftboss::", "shiftboss_actors"]),
    (
        "queue/src",
        &[
            "actix",
            "tokio",
            "rusqlite",
            "std::fs",
            "std::io",
            "std::time::S",
            "shiftboss_actors",
            "protocol::wire",
        ],
    ),
    ("stores/", &["actix", "clap", "shiftboss_actors", "shiftboss::"]),
    (
        "relay/src",
        &["clap", "rusqlite", "postgres", "shiftboss::", "shiftboss_sqlite", "shiftboss_spool"],
    ),
    ("relay/src/store", &["actix", "crate::server", "crate::dead_letters"]),
    ("relay/src/server", &["crate::store"]),
    ("relay/src/message", &["lapin", "tokio", "crate::link"]),
    (
        "queue/src/rules",
        &["crate::engine", "crate::records", "crate::memory", "operation::Operation"],
    ),
    ("queue/src/record.rs", &["crate::rules", "crate::engine", "crate::context", "crate::place"]),
    ("queue/src/extras.rs", &["crate::rules", "crate::engine", "crate::context", "crate::place"]),
    ("protocol/src/model", &["std::fs", "crate::wire"]),
    ("protocol/src/fetcher_file", &["std::fs", "std::io", "crate::wire"]),
    ("protocol/src/wire", &["std::fs", "crate::fetcher_file"]),
    ("actors/src/store", &["actix", "tokio", "std::fs", "std::io", "protocol::wire"]),
    (
        "actors/src/storage",
        &[
            "crate::connection",
            "crate::listener",
            "crate::file_watcher",
            "crate::file_tail",
            "crate::service",
            "protocol::wire",
        ],
    ),
    (
        "actors/src/file_",
        &["crate::connection", "crate::listener", "crate::service", "protocol::wire"],
    ),
    ("actors/src/service", &["crate::connection", "crate::listener", "crate::tree"]),
    ("actors/src/connection", &["crate::listener", "crate::tree"]),
    ("actors/src/connection", &["store::Store,", "store::Store;", "dyn Store", "impl Store"]),
    (
        "src/stores/sqlite",
        &["actix", "tokio::net", "tokio::sync", "clap", "crate::cli", "crate::commands"],
    ),
    ("spool/src", &["actix", "rusqlite", "shiftboss::", "shiftboss_actors", "shiftboss_queue"]),
    ("spool/src/program", &["crate::layer", "crate::layout", "crate::files", "crate::claim"]),
    ("spool/src/layer", &["super::"]),
    ("spool/src/files", &["super::Spool", "super::layout"]),
    ("spool/src/layout", &["super::Spool"]),
    ("spool/src/claim", &["super::entry", "super::reclaim", "super::guard"]),
    ("spool/src/entry", &["super::publish", "super::reclaim", "super::guard"]),
    ("spool/src/reclaim", &["super::guard", "super::reader", "super::fsck", "super::survey"]),
    ("spool/src/guard", &["super::reader", "super::reclaim"]),
    (
        "src/config",
        &["actix", "tokio", "rusqlite", "crate::cli", "crate::commands", "crate::fetch"],
    ),
    (
        "src/fetchers",
        &["rusqlite", "clap", "crate::stores::sqlite", "crate::cli", "crate::commands"],
    ),
    ("src/fetchers/record", &["actix", "tokio", "std::fs"]),
    ("runner/src", &["actix", "rusqlite", "clap", "shiftboss_", "shiftboss::"]),
    ("runner/src/child", &["crate::command", "crate::slots", "crate::signals", "crate::log_"]),
    (
        "console/src",
        &["actix", "rusqlite", "shiftboss::", "shiftboss_actors", "shiftboss_protocol", "spool::"],
    ),
    ("src/schedule/machine", &["actix", "tokio", "std::fs", "std::io", "Instant", "tracing"]),
    ("src/schedule/paths", &["actix", "tokio", "std::fs", "std::io", "tracing"]),
    ("src/schedule/tree_watch", &["actix", "tokio", "crate::child"]),
    (
        "src/schedule",
        &["actix", "rusqlite", "clap", "crate::cli", "crate::commands", "crate::stores::sqlite"],
    ),
    ("src/fetch/", &["actix", "rusqlite", "clap", "crate::cli", "crate::commands"]),
    (
        "src/worker",
        &["actix", "rusqlite", "clap", "shiftboss_actors", "crate::cli::", "crate::stores::sqlite"],
    ),
    (
        "src/view",
        &["actix", "tokio", "ratatui", "askama", "std::fs", "std::io", "crate::cli", "crate::live"],
    ),
    ("src/target", &["crate::view", "crate::cli", "crate::commands"]),
    ("src/stores", &["crate::target", "crate::view"]),
    ("src/commands", &["rusqlite", "stores::sqlite"]),
    ("src/cli", &["std::fs", "rusqlite", "actix", "shiftboss_actors"]),
];

/// Files that may be longer: flat lists of cases.
const LONG_FILES: &[(&str, usize)] =
    &[("actors/src/store/operations.rs", 800), ("stores/postgres/src/records.rs", 500)];

/// What makes or replaces a file, a directory, a link or a socket, or can.
const MAKERS: [&str; 21] = [
    "File::create",
    "OpenOptions",
    "fs::write(",
    "fs::copy(",
    "create_dir",
    "DirBuilder::new",
    "mkdir",
    "mknod",
    "OFlags::CREATE",
    "openat",
    "fs::rename(",
    "renameat",
    "hard_link",
    "fs::linkat(",
    "fs::symlink(",
    "symlinkat",
    "Listener::bind",
    "chown(",
    "set_permissions",
    "Connection::open(",
    "Connection::open_with_flags",
];

/// Where that may stand, how often, and why no link that somebody planted is followed there. All else is
/// made through `runner/src/safe_file.rs`.
const MADE: &[(&str, &str, usize, &str)] = &[
    (
        "actors/src/directory.rs",
        "openat",
        2,
        "opens lists to read, O_NOFOLLOW, and the directory itself",
    ),
    (
        "src/schedule/status_file.rs",
        "DirBuilder::new",
        1,
        "follows no link; whose it is, is looked at then",
    ),
    (
        "runner/src/log_directory.rs",
        "create_dir",
        2,
        "the operator's path; what is below it is distrusted",
    ),
    ("src/commands/serve/locks.rs", "create_dir", 1, "the operator's path"),
    ("src/fetch/claim.rs", "renameat", 1, "replaces whatever has the name"),
    (
        "runner/src/safe_file.rs",
        "OFlags::CREATE",
        2,
        "all files but those named here: exclusive, O_NOFOLLOW",
    ),
    ("runner/src/safe_file.rs", "mkdir", 1, "follows no link; opened O_NOFOLLOW then"),
    (
        "runner/src/safe_file.rs",
        "openat",
        3,
        "all files but those named here: one name, O_NOFOLLOW; or RESOLVE_BENEATH",
    ),
    ("runner/src/safe_file.rs", "renameat", 1, "replaces whatever has the name"),
    ("src/socket.rs", "Listener::bind", 1, "bind(2) follows no link, and replaces nothing"),
    ("src/web/listening.rs", "Listener::bind", 1, "an address of the network"),
    ("src/socket.rs", "chown(", 1, "lchown follows no link"),
    ("spool/src/layer.rs", "OFlags::CREATE", 3, "beneath the spool, O_NOFOLLOW"),
    ("spool/src/layer.rs", "mkdir", 1, "follows no link; looked at then"),
    (
        "spool/src/layer.rs",
        "openat",
        1,
        "one part of a path, O_NOFOLLOW; looked at before it is written",
    ),
    ("spool/src/layer.rs", "renameat", 1, "follows no link that has the name"),
    ("spool/src/layer.rs", "symlinkat", 1, "replaces nothing"),
    ("spool/src/spool.rs", "mkdir", 1, "the operator's path"),
    ("stores/sqlite/src/give_back.rs", "Connection::open_with_flags", 1, "to read"),
    ("stores/sqlite/src/salvage.rs", "Connection::open_with_flags", 1, "to read"),
    ("stores/sqlite/src/snapshot.rs", "Connection::open_with_flags", 1, "to read"),
    ("src/stores/sqlite/damage.rs", "Connection::open_with_flags", 1, "to read"),
    (
        "src/stores/sqlite/file.rs",
        "Connection::open_with_flags",
        1,
        "NOFOLLOW, of a file that was just made",
    ),
    ("src/stores/sqlite/file.rs", "fs::linkat(", 1, "follows no link, and replaces nothing"),
    (
        "src/stores/sqlite/open.rs",
        "Connection::open_with_flags",
        1,
        "an existing file, without CREATE",
    ),
    (
        "src/stores/sqlite/transfer.rs",
        "Connection::open_with_flags",
        1,
        "an existing file, without CREATE",
    ),
    ("src/stores/sqlite/maintenance.rs", "Connection::open_with_flags", 1, "to read"),
];

/// A source file, with its path from the workspace's root.
struct Source {
    path: String,
    lines: Vec<String>,
}

impl Source {
    fn read(root: &Path, path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap();
        let path = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        Self { path, lines: text.lines().map(str::to_owned).collect() }
    }

    /// A file that holds nothing but tests.
    fn is_tests(&self) -> bool {
        self.path.ends_with("tests.rs") || self.path.contains("/tests/")
    }

    /// The lines before the unit tests.
    fn product(&self) -> &[String] {
        let end = self.lines.windows(2).position(|pair| {
            pair[0] == "#[cfg(test)]" && !pair[1].ends_with(';') && pair[1].starts_with("mod ")
        });
        &self.lines[..end.unwrap_or(self.lines.len())]
    }

    fn at(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }
}

/// Every source file under the given directories.
fn sources(directories: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    directories.iter().for_each(|directory| collect(&root.join(directory), &mut paths));
    paths.sort();
    assert!(paths.len() > 5, "the sources are not where this test looks");
    paths.iter().map(|path| Source::read(root, path)).collect()
}

fn collect(directory: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            paths.push(path);
        }
    }
}

fn report(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

fn check(rule: impl Fn(&Source) -> Vec<String>) {
    report(&sources(&ROOTS).iter().flat_map(rule).collect::<Vec<_>>());
}

fn undocumented(source: &Source) -> Vec<String> {
    let documented = source.lines.iter().take(DOC_LINES).any(|line| line.starts_with("//! "));
    let violation = || source.at(1, "does not begin with a `//!` that says what it is");
    (!documented).then(violation).into_iter().collect()
}

fn too_long(source: &Source) -> Vec<String> {
    let len = if source.is_tests() { 0 } else { source.product().len() };
    let known = LONG_FILES.iter().find(|(path, _)| source.path == *path);
    let limit = known.map_or(FILE_LINES, |(_, limit)| *limit);
    let violation = || source.at(len, &format!("{len} lines, and {limit} may be"));
    (len > limit).then(violation).into_iter().collect()
}

/// Functions as rustfmt lays them out: from `fn` to the brace at the same depth.
fn long_functions(source: &Source) -> Vec<String> {
    let mut violations = Vec::new();
    for (start, line) in source.lines.iter().enumerate() {
        let Some(depth) = function_depth(line) else {
            continue;
        };
        let end = format!("{}}}", " ".repeat(depth));
        let rest = &source.lines[start..];
        let bodyless = |line: &String| line.ends_with(';') && indent(line) <= depth;
        let len = match rest.iter().position(|line| *line == end || bodyless(line)) {
            _ if line.ends_with('}') => 1,
            len => len.map_or(rest.len(), |len| len + 1),
        };
        if len > FUNCTION_LINES {
            let what = format!("a function of {len} lines, and {FUNCTION_LINES} may be");
            violations.push(source.at(start + 1, &what));
        }
    }
    violations
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// How far a line that begins a function is indented.
fn function_depth(line: &str) -> Option<usize> {
    let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "async", "unsafe"];
    let words = line.split_whitespace().skip_while(|word| qualifiers.contains(word));
    (words.take(1).eq(["fn"])).then(|| indent(line))
}

fn wrong_arrows(source: &Source) -> Vec<String> {
    let rules = ARROWS.iter().filter(|(prefix, _)| source.path.starts_with(prefix));
    let words: Vec<&str> = rules.flat_map(|(_, words)| words.iter().copied()).collect();
    let code = source.product().iter().enumerate().filter(|_| !source.is_tests());
    code.filter(|(_, line)| !line.trim_start().starts_with("//"))
        .flat_map(|(index, line)| {
            let found = words.iter().filter(|word| line.contains(**word));
            found.map(move |word| source.at(index + 1, &format!("must not know `{word}`")))
        })
        .collect()
}

/// How often each of [`MAKERS`] stands in which file.
fn makers(sources: &[Source]) -> Vec<(String, &'static str, usize)> {
    let mut found = std::collections::BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_tests()) {
        let code = source.product().iter().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            for maker in MAKERS.iter().filter(|maker| line.contains(**maker)) {
                *found.entry((source.path.clone(), *maker)).or_default() += 1;
            }
        }
    }
    found.into_iter().map(|((place, maker), count)| (place, maker, count)).collect()
}

/// Every place where a file is made is known, and so is why no planted link is followed there.
#[test]
fn files_are_made_safely() {
    let known: Vec<_> = MADE.iter().map(|made| (made.0.to_owned(), made.1, made.2)).collect();
    let found = makers(&sources(&ROOTS));
    let new = found.iter().filter(|place| !known.contains(place));
    let gone = known.iter().filter(|place| !found.contains(place));
    let new = new.map(|place| format!("make it through runner/src/safe_file.rs: {place:?}"));
    let gone = gone.map(|place| format!("no longer so, take it out of MADE: {place:?}"));
    report(&new.chain(gone).collect::<Vec<_>>());
}

/// Every file says at its top what it is.
#[test]
fn files_begin_with_what_they_are() {
    check(undocumented);
}

/// No file has more product code than can be kept in mind.
#[test]
fn files_are_short() {
    check(too_long);
}

/// No function is longer than a screen.
#[test]
fn functions_are_short() {
    check(long_functions);
}

/// Arrows between the parts run one way.
#[test]
fn arrows_run_one_way() {
    check(wrong_arrows);
}

/// Each rule finds what it is for; else the tests above would say nothing.
#[test]
fn the_rules_bite() {
    let source = |path: &str, text: String| Source {
        path: path.to_owned(),
        lines: text.lines().map(str::to_owned).collect(),
    };
    let body = "    call();\n".repeat(FUNCTION_LINES);
    let long = source("src/a.rs", format!("fn short() {{}}\n\npub async fn long() {{\n{body}}}\n"));
    assert_eq!(long_functions(&long), ["src/a.rs:3: a function of 72 lines, and 70 may be"]);
    assert_eq!(undocumented(&long).len(), 1);
    assert_eq!(undocumented(&source("src/a.rs", "//! It is a.\n".to_owned())), [""; 0]);
    let many = "//! a\n".repeat(FILE_LINES);
    let tests = "#[cfg(test)]\nmod tests {\n    use actix;\n}\n";
    assert_eq!(too_long(&source("src/a.rs", format!("{many}{tests}"))), [""; 0]);
    assert_eq!(too_long(&source("src/a.rs", format!("{many}// more\n{tests}"))).len(), 1);
    let arrows =
        source("src/stores/sqlite/a.rs", format!("//! no actix\nuse tokio::net;\n{tests}"));
    let maker = source("src/a.rs", "//! a\nFile::create(x);\n// fs::write(\n".to_owned());
    assert_eq!(makers(&[maker]), [("src/a.rs".to_owned(), "File::create", 1)]);
    assert_eq!(wrong_arrows(&arrows), ["src/stores/sqlite/a.rs:2: must not know `tokio::net`"]);
}
