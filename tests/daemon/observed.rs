//! What `status` and `backup` tell of a running daemon is true (spec 4 "visibly", spec 6).

use std::fs;

use crate::common::{Site, wait_until};

/// A lost input directory and files that are left out are shown, until they are back or gone.
#[test]
fn what_is_lost_and_left_out_is_shown() {
    let (site, _daemon) = Site::running(&[]);
    site.write("bad.name.txt", "alpha 0 1\n");
    fs::create_dir(site.file("d.1.txt")).unwrap();
    let names = || {
        let status = site.status();
        let aside = status["rejected_files"].as_array().unwrap().clone();
        aside.iter().map(|file| file["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    wait_until("both are shown", || names() == ["bad.name.txt", "d.1.txt"]);
    site.remove("bad.name.txt");
    wait_until("one is shown", || names() == ["d.1.txt"]);
    fs::remove_dir_all(site.input()).unwrap();
    wait_until("the loss is shown", || site.status()["directory_lost_since"].is_number());
    assert!(!site.input().exists());
    fs::create_dir(site.input()).unwrap();
    wait_until("it is back", || site.status()["directory_lost_since"].is_null());
    wait_until("nothing is left out", || names().is_empty());
}

/// Names with every character that means something to a shell, to SQL or in a URI.
#[test]
fn odd_names_of_database_and_directories() {
    let site = Site::bare();
    let odd = "a?b=c&d%20#e 'f' \"g\" *\n\u{e9}";
    let (database, input) = (format!("{odd}.db"), format!("{odd}/in"));
    fs::create_dir(site.path(odd)).unwrap();
    let mut command = site.program();
    command.args(["serve", &database, &input, "socket"]);
    let daemon = site.spawn(command).ready();
    fs::write(site.path(&input).join("f.1.txt.part"), "alpha 0 1\n").unwrap();
    assert_eq!(site.ask("READY"), "JOB alpha 0 1\n");
    assert_eq!(site.status_of("socket")["rows"]["dispatched"], 1);
    assert_eq!(site.status_of(&database)["rows"]["dispatched"], 1);
    assert!(site.run(&["backup", "-t", &database, "copy.db"]).status.success());
    daemon.stop();
    assert_eq!(site.status_of(&database)["rows"]["dispatched"], 1);
    assert!(site.path(&database).is_file());
}
