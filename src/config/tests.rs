//! What a file may say, and what is said of one that is wrong.

use super::*;
use crate::cli::ServeOptions;

/// A whole file, as a user writes it.
const WHOLE: &str = r#"
database = "state.db"
input_dir = "input"
socket = "/run/shiftboss/worker.sock"
lease = "2h"
log_level = "info,shiftboss=debug"

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

fn options(text: &str) -> Result<ServeOptions, (usize, String)> {
    options::of_text(text, Path::new("/etc/boss"))
}

/// What is said is there, and the rest has the defaults of the commands.
#[test]
fn a_whole_file_is_read() {
    let options = options(WHOLE).unwrap();
    assert_eq!(options.files().database, Some(Path::new("/etc/boss/state.db")));
    let tables: Vec<FetcherTable> =
        options.fetcher.into_iter().map(toml::Spanned::into_inner).collect();
    let [repology, notes] = tables.as_slice() else { panic!("{tables:?}") };
    assert_eq!(repology.command, ["/etc/boss/list-packages", "--all"]);
    assert_eq!((repology.min_lines, repology.min_share), (1000, 0.5));
    assert_eq!(notes.command, ["list-notes"]);
    let on_change = notes.on_change.as_ref().unwrap();
    assert_eq!(on_change.paths, [Path::new("/etc/boss/notes")]);
    let seconds = std::time::Duration::from_secs;
    assert_eq!(
        (on_change.debounce, on_change.max_wait, on_change.cooldown),
        (seconds(2), seconds(60), seconds(0))
    );
    assert_eq!((notes.min_lines, notes.min_share, notes.retry), (1, 0.5, false));
}

/// Each mistake is told with the line it is in, and with what is wrong.
#[test]
fn mistakes_are_told_with_their_line() {
    let fetcher = |lines: &str| format!("lease = '2h'\n[[fetcher]]\nname = 'a'\n{lines}\n");
    for (text, line, said) in [
        ("lease = '2h'\nleese = '2h'\n".to_owned(), 2, "leese"),
        ("lease = '1500ms'\n".to_owned(), 1, "whole seconds"),
        ("\nmax_expired_leases = 0\n".to_owned(), 2, "1..=1000"),
        ("socket_mode = 999\n".to_owned(), 1, "octal"),
        ("durability = 'none'\n".to_owned(), 1, "power"),
        ("classic = true\nlease = '2h'".to_owned(), 1, "classic"),
        ("lease = \n".to_owned(), 1, ""),
        (fetcher("command = ['x']\nevery = '1h'\nuser = 'root'"), 6, "user"),
        (fetcher("command = []\nevery = '1h'"), 4, "program"),
        (fetcher("command = 'x'\nevery = '1h'"), 4, "list of words"),
        (fetcher("command = ['x']\nevery = 12"), 5, "in quotes"),
        (
            "[[fetcher]]\nname = 'a'\ncommand = ['x']\non_change = { paths = [\"a\\u0000\"] }"
                .to_owned(),
            4,
            "directories",
        ),
        ("lease = 'soon'".to_owned(), 1, "90s"),
        ("\ninput_dir = ''".to_owned(), 2, "name a path"),
        ("log_level = 'loud=='".to_owned(), 1, "loud"),
        ("log_level = 'lodu'".to_owned(), 1, "is no level"),
        (fetcher("command = ['x']\nevery = '0.5s'"), 5, "time"),
        (fetcher("command = ['x']\nevery = '1ms'"), 5, "1s"),
        (fetcher("command = ['x']\nevery = '400days'"), 5, "366days"),
        (fetcher("command = ['x']\nevery = '1h'\ntimeout = '0s'"), 6, "above 0"),
        (fetcher("command = ['x']\nevery = '1h'\nmin_share = 1.5"), 6, "from 0 to 1"),
        (fetcher("command = ['x']\nevery = '1h'\nmin_lines = -1"), 6, "-1"),
        (fetcher("command = ['x']"), 2, "never run"),
        (fetcher("every = '1h'"), 2, "command"),
        (fetcher("command = ['x']\non_change = {}"), 5, "paths"),
        (fetcher("command = ['x']\non_change = 'notes'"), 5, "a table, as in"),
        (fetcher("command = ['x']\non_change = { paths = 'notes' }"), 5, "name the directories"),
        (fetcher("command = ['x']\non_change = { paths = ['~/notes'] }"), 5, "not expanded"),
        (fetcher("command = ['x']\non_change = { paths = [] }"), 5, "directories"),
        (
            fetcher("command = ['x']\n[fetcher.on_change]\npaths = ['t']\nglobs = ['[z-a]']"),
            7,
            "[z-a]",
        ),
        (fetcher("command = ['x']\nevery = '1h'\nenvironment = { 'A=B' = 'c' }"), 2, "A=B"),
        (
            fetcher(
                "command = ['x']\nevery = '1h'\n[[fetcher]]\nname = 'a'\ncommand = ['y']\nevery = '1h'",
            ),
            6,
            "already",
        ),
        ("[[fetcher]]\nname = 'a.b'\n".to_owned(), 2, "no dot"),
    ] {
        let (found, what) = options(&text).unwrap_err();
        assert!(found == line && what.contains(said), "{text}\n{found}: {what}");
    }
}

/// What is wrong is told in the words of a file, not of a program, and what was meant is named.
#[test]
fn mistakes_are_told_plainly() {
    let fetcher = |line: &str| format!("[[fetcher]]\nname = 'a'\ncommand = ['x']\n{line}\n");
    for (text, said) in [
        ("leese = '2h'", "there is no key \"leese\" here; did you mean \"lease\"?"),
        ("socket-mode = '0660'", "did you mean \"socket_mode\"?"),
        ("[serve]\nlease = '2h'", "there are: database, classic, lease"),
        ("durability = 'powr'", "there is no value \"powr\" here; did you mean \"power\"?"),
        ("durability = 1", "there is no value \"1\" here; there are: power, process"),
        ("database = ['a']", "is needed here, not a list"),
        ("lease = 2h", "a text in quotes, as in \"text\", is needed here"),
        ("lease = 5", "\"5\" is no time such as \"90s\""),
        ("max_expired_leases = 5000000000", "5000000000 is not in 1..=1000"),
        ("serve.leese = '2h'", "there is no key \"serve\" here; did you mean \"lease\"?"),
        ("leese.x = 1", "did you mean \"lease\"?"),
        ("fetcher.name = 'a'", "write [[fetcher]], in double brackets"),
        (&fetcher("on_change.debonce = '2s'"), "did you mean \"debounce\"?"),
        ("max_connections = 0", "zero"),
        ("classic = 'yes'", "there is no value \"yes\" here; there are: true, false"),
        ("lease: '2h'", "a line is KEY = VALUE"),
        ("lease = '2h'\nlease = '3h'", "this key is there twice"),
        ("[fetcher]\nname = 'a'", "write [[fetcher]], in double brackets"),
        ("[[fetchers]]\nname = 'a'", "did you mean \"fetcher\"?"),
        ("[[fetcher]]\nname = 'a'", "the key \"command\" is missing"),
        (&fetcher("evry = '1h'"), "did you mean \"every\"?"),
        (&fetcher("min_share = '0.5'"), "a number such as 0.5"),
        (&fetcher("environment = 'A=B'"), "a table in braces, as in { NAME = \"text\" }"),
        (&fetcher("on_change = { paths = ['x'], globs = '*.org' }"), "a list in brackets"),
        (&fetcher("on_change = { paths = ['x'], glob = ['*.org'] }"), "did you mean \"globs\"?"),
    ] {
        let (_, what) = options(text).unwrap_err();
        assert!(what.contains(said), "{text}\n{what}");
        assert!(
            !["sequence", "field", "u32", "map"].iter().any(|word| what.contains(word)),
            "{what}"
        );
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

/// Files that are none of a person's.
#[test]
fn strange_files_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shiftboss.toml");
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        read_options::<ServeOptions>(&path).unwrap_err().to_string()
    };
    assert!(refused(b"lease = '2h'\n# \xff\n").ends_with("shiftboss.toml:2: this is not UTF-8"));
    assert!(refused(&vec![b'\n'; FILE_BYTES_MAX as usize + 1]).contains("bytes"));
    let refused = |path: &Path| read_options::<ServeOptions>(path).unwrap_err().to_string();
    assert!(refused(directory.path()).contains("is no file"));
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    assert!(refused(&pipe).contains("is no file"));
    assert!(
        read_options::<ServeOptions>(Path::new("/nowhere/x"))
            .unwrap_err()
            .to_string()
            .contains("/nowhere/x")
    );
}

proptest::proptest! {
    /// Whatever becomes of a file, it is read or refused with a line that it has.
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
