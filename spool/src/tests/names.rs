//! Names: what may be one, how it is shown, and that any bytes go through a whole life.

use proptest::prelude::*;

use super::support::*;
use crate::*;

#[test]
fn what_is_not_a_name() {
    let refused = |bytes: &[u8]| EntryName::new(bytes).unwrap_err();
    assert_eq!(refused(b""), NameError::Empty);
    assert_eq!(refused(b".hidden"), NameError::LeadingDot);
    assert_eq!(refused(b".."), NameError::LeadingDot);
    assert_eq!(refused(b"a/b"), NameError::Separator);
    assert_eq!(refused(b"a\0b"), NameError::Separator);
    assert_eq!(refused(&[b'x'; 256]), NameError::TooLong(256));
    assert!(EntryName::new([b'x'; 255]).is_ok());
    assert_eq!("a\\b".parse::<EntryName>().unwrap_err(), NameError::Escape);
    assert_eq!("a\\xzz".parse::<EntryName>().unwrap_err(), NameError::Escape);
    assert_eq!("\\x2e.".parse::<EntryName>().unwrap_err(), NameError::LeadingDot);
}

/// Names by time are in order, and never the same.
#[test]
fn names_by_time() {
    let names: Vec<_> = (0..1000).map(time_ordered).collect();
    assert!(names.is_sorted());
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
}

fn any_name() -> impl Strategy<Value = Vec<u8>> {
    let byte = any::<u8>().prop_filter("no separator", |byte| !matches!(byte, 0 | b'/'));
    let bytes = prop::collection::vec(byte, 1..=255);
    bytes.prop_filter("no leading dot", |bytes| bytes[0] != b'.')
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What is shown is read back, and sorts, is stored and comes back byte for byte.
    #[test]
    fn any_bytes_live(bytes in any_name(), other in any_name()) {
        let name = EntryName::new(&bytes).unwrap();
        let queue = QueueName::new(&other).unwrap();
        let shown = name.to_string();
        prop_assert!(!shown.chars().any(char::is_control));
        prop_assert_eq!(&shown.parse::<EntryName>().unwrap(), &name);
        prop_assert_eq!(serde_json::to_string(&name).unwrap(), serde_json::to_string(&shown).unwrap());
        let (_site, spool) = Site::created();
        spool.enqueue(&queue, |_| name.clone(), &Item::new("m", "d")).unwrap();
        prop_assert_eq!(spool.queues().unwrap(), std::slice::from_ref(&queue));
        let guard = spool.checkout(&queue, &name).unwrap();
        prop_assert!(spool.reclaim().unwrap().is_empty());
        guard.fail().unwrap();
        let guard = spool.checkout(&queue, &name).unwrap();
        prop_assert_eq!(guard.attempt(), 2);
        guard.complete().unwrap();
        assert_whole(&spool);
    }
}
