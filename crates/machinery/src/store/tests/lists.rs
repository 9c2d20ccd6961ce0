//! Effects of lists and watch events on the held objects, and the deltas reported of them.

use super::*;

#[test]
fn objects_missing_from_a_list_are_deleted_first() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 5)]);
    bed.reported();
    bed.list(9, vec![thing("b", 2, 7), thing("c", 3, 8)]);
    let reported = bed.in_order();
    assert_eq!(reported[0], "-a1@3");
    assert_eq!(reported.len(), 3, "{reported:?}");
    assert!(["+c3@8", "~b2@5>7"].iter().all(|delta| reported.iter().any(|one| one == delta)));
    assert_eq!(bed.held(), ["b2@7", "c3@8"]);
}

#[test]
fn a_current_list_replaces_all_but_newer_own_writes() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.apply(thing("a", 1, 8));
    bed.wrote(thing("b", 2, 11));
    bed.reported();
    assert!(!bed.list(7, vec![thing("a", 1, 3), thing("b", 2, 4)]), "it is older");
    assert!(bed.list(10, vec![thing("a", 1, 3), thing("b", 2, 4)]));
    assert_eq!(bed.held(), ["a1@3", "b2@11"]);
    assert_eq!(bed.reported(), ["~a1@8>3"]);
}

#[test]
fn a_bookmark_removes_created_objects_outside_the_scope() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 6));
    bed.bookmark(5);
    assert_eq!(bed.held(), ["a1@6"]);
    bed.bookmark(8);
    assert!(bed.held().is_empty());
    assert_eq!(bed.in_order(), ["+a1@6", "-a1@6"]);
    assert_eq!(bed.store.unconfirmed(), 0);
    bed.wrote(thing("a", 1, 9));
    bed.apply(thing("b", 2, 10));
    bed.bookmark(10);
    assert_eq!(bed.held(), ["b2@10"], "also if the bookmark repeats the version of an event");
}

#[test]
fn a_deletion_without_a_uid_removes_any_object_of_the_name() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.wrote(thing("b", 2, 6));
    bed.reported();
    for name in ["a", "b", "c"] {
        let meta = Meta::named(key(name));
        bed.deleted(Thing { meta, color: "none".into() });
    }
    assert_eq!((bed.reported(), bed.held().len()), (vec!["-a1@3".into(), "-b2@6".into()], 0));
    bed.apply(thing("b", 2, 7));
    assert_eq!(bed.held(), ["b2@7"], "what comes after it is news");
}

#[test]
fn without_versions_a_list_replaces_an_undecodable_object() {
    let mut bed = Bed::new();
    bed.list(0, vec![thing("a", 1, 0)]);
    bed.writer.undecodable(&key("a"), uid(1), ResourceVersion::UNKNOWN, false);
    bed.list(0, vec![thing("a", 2, 0)]);
    assert_eq!(bed.store.get(&key("a")).unwrap().uid(), uid(2));
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn without_versions_events_are_stored_and_responses_are_not() {
    let mut bed = Bed::new();
    bed.list(0, vec![thing("a", 1, 0)]);
    bed.wrote(thing("a", 1, 0));
    assert_eq!(bed.store.unconfirmed(), 0);
    bed.apply(thing("a", 1, 0));
    bed.deleted(thing("a", 1, 0));
    assert!(bed.held().is_empty());
    assert_eq!(bed.in_order(), ["+a1@unknown", "~a1@unknown>unknown", "-a1@unknown"]);
}

#[test]
fn an_undecodable_item_keeps_only_the_state_of_its_uid() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.reported();
    bed.writer.begin_replace();
    bed.writer.keep(&key("a"), uid(1));
    bed.writer.keep(&key("b"), uid(9));
    bed.commit(8);
    assert_eq!(bed.reported(), ["-b2@4"]);
    assert_eq!(bed.held(), ["a1@3"]);
    bed.writer.undecodable(&key("a"), uid(1), ResourceVersion::new(9), false);
    assert!(bed.reported().is_empty(), "it is the same object");
    bed.writer.undecodable(&key("a"), uid(1), ResourceVersion::new(10), true);
    assert_eq!(bed.reported(), ["-a1@3"]);
    assert!(bed.held().is_empty());
}

#[test]
fn an_object_deleted_during_a_streaming_list_is_not_stored() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.reported();
    bed.writer.begin_replace();
    for name in ["a", "b", "c"] {
        bed.writer.stage(thing(name, name.bytes().map(u64::from).sum::<u64>() - 96, 4));
        bed.writer.unstage(&key(name));
    }
    bed.writer.stage(thing("b", 2, 4));
    bed.commit(8);
    assert_eq!((bed.reported(), bed.held()), (vec!["-a1@3".to_owned()], vec!["b2@4".to_owned()]));
}

#[test]
fn an_abandoned_list_changes_nothing() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.reported();
    bed.writer.begin_replace();
    bed.writer.stage(thing("b", 2, 4));
    bed.writer.abort();
    assert!(!bed.commit(9));
    assert_eq!((bed.reported().len(), bed.held()), (0, vec!["a1@3".to_owned()]));
}

#[test]
fn an_undecodable_item_keeps_the_state_of_our_write() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 7));
    bed.writer.begin_replace();
    bed.writer.keep(&key("a"), uid(1));
    bed.commit(8);
    assert_eq!((bed.in_order(), bed.store.unconfirmed()), (vec!["+a1@7".into()], 0));
    bed.list(9, vec![thing("a", 1, 7)]);
    assert_eq!((bed.reported().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn a_deletion_removes_the_object_at_its_version_but_no_newer_one() {
    let mut bed = Bed::new();
    bed.list(9, vec![thing("a", 1, 3), thing("b", 2, 4), thing("c", 3, 5)]);
    bed.reported();
    bed.deleted(thing("a", 1, 3));
    bed.deleted(thing("b", 2, 3));
    bed.deleted(thing("c", 4, 8));
    assert_eq!(bed.held(), ["b2@4", "c3@5"]);
    assert_eq!(bed.reported(), ["-a1@3"]);
    // What was deleted came after the object that is held.
    bed.deleted(thing("b", 9, 12));
    assert_eq!((bed.held(), bed.reported()), (vec!["c3@5".to_owned()], vec!["-b2@4".to_owned()]));
}
