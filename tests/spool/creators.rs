//! Processes that create one spool at the same time (spec 5.1), really processes: this test's binary again.

use std::path::Path;
use std::process::Child;

use shiftboss_spool::{Durability, EntryName, Item, Options, QueueName, Spool};

use super::common::{Site, child, wait_until};
use super::{assert_whole, listed};

const MAKERS: usize = 4;
const ROUNDS: usize = 20;
const ROLE: &str = "creators::creator";
const PLACE: &str = "SHIFTBOSS_TEST_PLACE";

/// The processes' part: creates the spool of each round when that begins, and puts an entry into it.
#[test]
fn creator() {
    if !child::plays(ROLE) {
        return;
    }
    let place = std::env::var(PLACE).unwrap();
    let (place, me) = place.split_once(' ').unwrap();
    // The harness has begun a line.
    println!("\nready");
    for round in 0..ROUNDS {
        wait_until("the round begins", || {
            Path::new(place).join(format!("go{me}-{round}")).exists()
        });
        let options = Options { durability: Durability::None, ..Options::default() };
        let spool = Spool::create(&Path::new(place).join(format!("s{round}")), options).unwrap();
        let name = EntryName::new(format!("e{me}")).unwrap();
        spool
            .enqueue(&QueueName::new("q").unwrap(), |_| name.clone(), &Item::new("m", "d"))
            .unwrap();
        println!("made {round}.");
    }
}

/// Four at once, again and again: each has a whole spool, and all their entries are in it.
#[test]
fn processes_create_at_once() {
    let site = Site::bare();
    let mut makers: Vec<Child> = (0..MAKERS)
        .map(|me| {
            let mut command = child::command(ROLE);
            command.env(PLACE, format!("{} {me}", site.path("").display()));
            command.spawn().unwrap()
        })
        .collect();
    makers.iter_mut().for_each(|maker| _ = child::wait_word(maker, "ready"));
    for round in 0..ROUNDS {
        for me in 0..MAKERS {
            std::fs::write(site.path(&format!("go{me}-{round}")), "").unwrap();
        }
        for maker in &mut makers {
            child::wait_word(maker, &format!("made {round}."));
        }
        let spool = site.path(&format!("s{round}"));
        std::fs::rename(spool, site.path("s")).unwrap();
        assert_eq!(listed(&site, "q"), ["e0", "e1", "e2", "e3"]);
        assert_whole(&site);
        std::fs::remove_dir_all(site.path("s")).unwrap();
    }
    for mut maker in makers {
        assert!(maker.wait().unwrap().success());
    }
}
