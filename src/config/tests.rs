//! What a file may contain, and the errors of a wrong one.

use super::keys::Value;
use super::*;
use crate::cli::ServeOptions;

/// A whole file, as a user writes it.
const WHOLE: &str = r#"
database = "state.db"
input_dir = "input"
socket = "/run/shiftboss/worker.sock"
lease = "2h"
log_level = "info,shiftboss=debug"

[[group]]
name = "host"
by = { prefix = "/" }
rate = "100/1h"
[[group.limit]]
match = "*.org"
delay = "30s"

[[fetcher]]
name = "repology"
command = ["./list-packages", "--all"]
every = "12h"
timeout = "1h"
min_lines = 1000
min_share = 0.5
environment = { LANG = "C" }

[[fetcher]]
name = "notes"
command = ["list-notes"]
on_change = { paths = ["notes"], globs = ["*.org"], debounce = "2s", cooldown = "0s" }
"#;

/// The keys of a table with this text, which are right.
pub fn keys<T: Keys>(text: &str) -> T {
    table(text, |value| keys::of_value(value, Path::new(""))).unwrap()
}

/// A table with this text, as it is read.
pub fn table<T>(text: &str, read: impl FnOnce(&Value<'_>) -> T) -> T {
    let table = toml::de::DeTable::parse(text).unwrap();
    read(&toml::Spanned::new(0..0, toml::de::DeValue::Table(table.into_inner())))
}

fn options(text: &str) -> Result<ServeOptions, (usize, String)> {
    let read = keys::of_text(text, Path::new("/etc/boss"), &keys::Written::new());
    let line = |fault: Fault| (line_of(text.as_bytes(), fault.place.start), fault.what);
    read.map(|(options, _)| options).map_err(line)
}

/// The written values are there, and the rest has the commands' defaults.
#[test]
fn a_whole_file_is_read() {
    let options = options(WHOLE).unwrap();
    assert_eq!(options.files().database, Some(Path::new("/etc/boss/state.db")));
    let [repology, notes] = options.fetcher.as_slice() else { panic!("{options:?}") };
    assert_eq!(repology.list.command, ["/etc/boss/list-packages", "--all"]);
    assert_eq!((repology.list.min_lines, repology.list.min_share), (1000, 0.5));
    assert_eq!(repology.list.environment["LANG"], "C");
    assert_eq!(notes.list.command, ["list-notes"]);
    let on_change = notes.on_change.as_ref().unwrap();
    assert_eq!(on_change.paths, [Path::new("/etc/boss/notes")]);
    let seconds = std::time::Duration::from_secs;
    let watch = &on_change.watch;
    let times = [watch.debounce, watch.max_wait, watch.cooldown];
    assert_eq!(times, [2, 60, 0].map(seconds));
    let list = &notes.list;
    assert_eq!((list.min_lines, list.min_share, notes.rerun_on_failure), (1, 0.5, false));
}

/// Each mistake is reported with its line, and with what is wrong or was meant.
#[test]
fn mistakes_are_told_with_their_line() {
    let fetcher = |lines: &str| format!("lease = '2h'\n[[fetcher]]\nname = 'a'\n{lines}\n");
    let timed = |line: &str| fetcher(&format!("command = ['x']\nevery = '1h'\n{line}"));
    let watching = |keys: &str| fetcher(&format!("command = ['x']\non_change = {keys}"));
    for (text, line, said) in [
        ("lease = '2h'\nleese = '2h'\n", 2, "no key \"leese\" here; did you mean \"lease\"?"),
        ("socket-mode = '0660'", 1, "did you mean \"socket_mode\"?"),
        ("[serve]\nlease = '2h'", 1, "there are: database, classic, lease"),
        ("leese.x = 1", 1, "did you mean \"lease\"?"),
        ("lease = \n", 1, ""),
        ("lease: '2h'", 1, ""),
        ("lease = '2h'\nlease = '3h'", 2, "duplicate key"),
        ("lease = '1500ms'\n", 1, "whole seconds"),
        ("lease = 'soon'", 1, "90s"),
        ("lease = 5", 1, "lease: write this in quotes"),
        ("\nmax_expired_leases = 0\n", 2, "1..=1000"),
        ("max_expired_leases = 5000000000", 1, "5000000000 is not in 1..=1000"),
        ("max_connections = 0", 1, "zero"),
        ("socket_mode = '999'\n", 1, "octal"),
        ("socket_mode = 660\n", 1, "in quotes"),
        ("durability = 'powr'\n", 1, "there is no value \"powr\" here; did you mean \"power\"?"),
        ("classic = 'yes'", 1, "there are: true, false"),
        ("database = ['a']", 1, "not a list"),
        ("\ninput_dir = ''", 2, "name a path"),
        ("log_level = 'loud=='", 1, "loud"),
        ("log_level = 'lodu'", 1, "is no level"),
        ("relay_operators = { a = 1 }", 1, "not a table"),
        ("fetcher.name = 'a'", 1, "write [[fetcher]], in double brackets"),
        ("[fetcher]\nname = 'a'", 1, "write [[fetcher]], in double brackets"),
        ("[[fetchers]]\nname = 'a'", 1, "did you mean \"fetcher\"?"),
        ("[[fetcher]]\nname = 'a.b'\n", 2, "no dot"),
        ("backoff = 3", 1, "a table is needed"),
        ("[job_retry]\nretries = 2\nfrist = '1s'", 3, "did you mean \"first\"?"),
        (&timed("user = 'root'"), 6, "user"),
        (&fetcher("command = []\nevery = '1h'"), 2, "\"command\" is missing, or has nothing"),
        (&fetcher("command = ['']\nevery = '1h'"), 2, "names a program"),
        (&fetcher("command = 'x'\nevery = '1h'"), 4, "a list in brackets"),
        (&fetcher("command = ['x']\nevery = 12"), 5, "in quotes"),
        (&fetcher("command = ['x']\nevery = '1ms'"), 5, "1s"),
        (&fetcher("command = ['x']\nevery = '400days'"), 5, "366days"),
        (&fetcher("command = ['x']"), 2, "never run"),
        (&fetcher("every = '1h'"), 2, "command"),
        (&timed("timeout = '0s'"), 6, "above 0"),
        (&timed("min_share = 1.5"), 6, "from 0 to 1"),
        (&timed("min_lines = -1"), 6, "min_lines: invalid digit"),
        (&timed("environment = { 'A=B' = 'c' }"), 6, "A=B"),
        (&timed("environment = 'A=B'"), 6, "a table of texts"),
        (&timed("[[fetcher]]\nname = 'a'\ncommand = ['y']\nevery = '1h'"), 6, "already"),
        (&watching("{}"), 5, "paths"),
        (&watching("'notes'"), 5, "a table is needed"),
        (&watching("{ paths = 'notes' }"), 5, "a list in brackets"),
        (&watching("{ paths = ['~/notes'] }"), 5, "not expanded"),
        (&watching("{ paths = [\"a\\u0000\"] }"), 5, "name a path"),
        (&watching("{ paths = ['x'], glob = ['*.org'] }"), 5, "did you mean \"globs\"?"),
        (
            &fetcher("command = ['x']\n[fetcher.on_change]\npaths = ['t']\nglobs = ['[z-a]']"),
            7,
            "[z-a]",
        ),
    ] {
        let (found, what) = options(text).unwrap_err();
        assert!(found == line && what.contains(said), "{text}\n{found}: {what}");
    }
}

/// There is a limit to everything.
#[test]
fn there_are_not_too_many_fetchers() {
    let fetcher =
        |number| format!("[[fetcher]]\nname = 'n{number}'\ncommand = ['x']\nevery = '1h'\n");
    let file = |count| (0..count).map(fetcher).collect::<String>();
    assert_eq!(options(&file(1000)).unwrap().fetcher.len(), 1000);
    let (line, what) = options(&file(1001)).unwrap_err();
    assert!(line == 4001 && what.contains("1000"), "{line}: {what}");
}

/// Files that were not written by a person.
#[test]
fn strange_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shiftboss.toml");
    let refusal = |path: &Path| File::read(path).map(drop).unwrap_err().to_string();
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        refusal(&path)
    };
    assert!(refused(b"lease = '2h'\n# \xff\n").ends_with("shiftboss.toml:2: this is not UTF-8"));
    assert!(refused(&vec![b'\n'; FILE_BYTES_MAX as usize + 1]).contains("bytes"));
    assert!(refusal(directory.path()).contains("is no file"));
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    assert!(refusal(&pipe).contains("is no file"));
    assert!(refusal(Path::new("/nowhere/x")).contains("/nowhere/x"));
}

proptest::proptest! {
    /// However a file is mangled, it is read, or refused with a line that it has.
    #[test]
    fn a_mangled_file_is_read_or_refused(
        cuts in proptest::collection::vec((0_usize..WHOLE.len(), 0_usize..12, "[ -~\n\u{0}é\"'=\\[\\]]{0,6}"), 1..5)
    ) {
        let mut text = WHOLE.to_owned();
        for (place, length, new) in cuts {
            let bounds = |mut at: usize| {
                at = at.min(text.len());
                while !text.is_char_boundary(at) {
                    at -= 1;
                }
                at
            };
            let (begin, end) = (bounds(place), bounds(place + length));
            text.replace_range(begin..end, &new);
        }
        if let Err((line, what)) = options(&text) {
            proptest::prop_assert!(line >= 1 && line <= text.lines().count() + 1, "{line}: {what}\n{text}");
            proptest::prop_assert!(!what.is_empty());
        }
    }
}
