//! Effects of lists and watch events on the held objects, and the deltas reported of them.

use super::*;

#[test]
fn a_relist_of_unchanged_objects_tells_nothing_and_replaces_nothing() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 5)]);
    assert_eq!(bed.told(), ["+a1@3", "+b2@5"]);
    let before = bed.store.get(&key("a")).unwrap();
    bed.list(9, vec![thing("a", 1, 3), thing("b", 2, 5)]);
    assert!(bed.told().is_empty());
    assert!(Arc::ptr_eq(&before, &bed.store.get(&key("a")).unwrap()));
    assert_eq!(bed.writer.version(), ResourceVersion::new(9));
}

#[test]
fn what_a_list_lacks_was_deleted_and_deletes_come_first() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 5)]);
    bed.told();
    bed.list(9, vec![thing("b", 2, 7), thing("c", 3, 8)]);
    let told = bed.in_order();
    assert_eq!(told[0], "-a1@3");
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(["+c3@8", "~b2@5>7"].iter().all(|delta| told.iter().any(|one| one == delta)));
    assert_eq!(bed.held(), ["b2@7", "c3@8"]);
}

#[test]
fn a_new_object_under_an_old_name_is_a_delete_and_an_add() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.told();
    bed.apply(thing("a", 7, 6));
    assert_eq!(bed.in_order(), ["-a1@3", "+a7@6"]);
    bed.told();
    bed.list(9, vec![thing("a", 7, 6), thing("b", 8, 9)]);
    assert_eq!(bed.in_order(), ["-b2@4", "+b8@9"]);
}

#[test]
fn a_list_older_than_what_was_seen_is_refused_whole() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.apply(thing("a", 1, 8));
    bed.told();
    assert!(!bed.list(7, vec![]));
    assert!(bed.told().is_empty());
    assert_eq!(bed.held(), ["a1@8"]);
    assert!(bed.list(8, vec![thing("a", 1, 8)]));
}

#[test]
fn a_list_that_is_not_older_wins_but_for_what_was_written_since() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.apply(thing("a", 1, 8));
    bed.wrote(thing("b", 2, 11));
    bed.told();
    assert!(!bed.list(7, vec![thing("a", 1, 3), thing("b", 2, 4)]), "it is older");
    assert!(bed.list(10, vec![thing("a", 1, 3), thing("b", 2, 4)]));
    assert_eq!(bed.held(), ["a1@3", "b2@11"]);
    assert_eq!(bed.told(), ["~a1@8>3"]);
}

#[test]
fn old_and_repeated_events_change_nothing() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    bed.told();
    bed.apply(thing("a", 1, 3));
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    assert!(bed.told().is_empty());
    assert!(bed.held().is_empty());
    bed.apply(thing("a", 2, 8));
    bed.told();
    bed.deleted(thing("a", 1, 7));
    assert_eq!((bed.told().len(), bed.held()), (0, vec!["a2@8".to_owned()]));
}

#[test]
fn an_object_outside_of_what_is_watched_leaves_with_the_next_bookmark() {
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
fn a_deleted_event_with_a_name_alone_means_whatever_has_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.wrote(thing("b", 2, 6));
    bed.told();
    for name in ["a", "b", "c"] {
        let meta = Meta::named(key(name));
        bed.deleted(Thing { meta, color: "none".into() });
    }
    assert_eq!((bed.told(), bed.held().len()), (vec!["-a1@3".into(), "-b2@6".into()], 0));
    bed.apply(thing("b", 2, 7));
    assert_eq!(bed.held(), ["b2@7"], "what comes after it is news");
}

#[test]
fn without_versions_a_list_takes_what_is_under_a_name_that_could_not_be_decoded() {
    let mut bed = Bed::new();
    bed.list(0, vec![thing("a", 1, 0)]);
    bed.writer.update_undecodable(&key("a"), uid(1), ResourceVersion::UNKNOWN);
    bed.list(0, vec![thing("a", 2, 0)]);
    assert_eq!(bed.store.get(&key("a")).unwrap().uid(), uid(2));
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn without_versions_the_watch_is_believed_and_answers_are_not() {
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
fn an_undecodable_item_keeps_what_is_held_of_it_and_only_that() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.told();
    bed.writer.begin();
    bed.writer.retain(&key("a"), uid(1));
    bed.writer.retain(&key("b"), uid(9));
    bed.commit(8);
    assert_eq!(bed.told(), ["-b2@4"]);
    assert_eq!(bed.held(), ["a1@3"]);
    bed.writer.update_undecodable(&key("a"), uid(1), ResourceVersion::new(9));
    assert!(bed.told().is_empty(), "it is the same object");
    bed.writer.delete_undecodable(&key("a"), uid(1), ResourceVersion::new(10));
    assert_eq!(bed.told(), ["-a1@3"]);
    assert!(bed.held().is_empty());
}

#[test]
fn what_a_streaming_list_takes_back_is_not_held() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.told();
    bed.writer.begin();
    for name in ["a", "b", "c"] {
        bed.writer.listed(thing(name, name.bytes().map(u64::from).sum::<u64>() - 96, 4));
        bed.writer.unstage(&key(name));
    }
    bed.writer.listed(thing("b", 2, 4));
    bed.commit(8);
    assert_eq!((bed.told(), bed.held()), (vec!["-a1@3".to_owned()], vec!["b2@4".to_owned()]));
}

#[test]
fn a_list_that_is_given_up_leaves_no_trace() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.told();
    bed.writer.begin();
    bed.writer.listed(thing("b", 2, 4));
    bed.writer.abandon();
    assert!(!bed.commit(9));
    assert_eq!((bed.told().len(), bed.held()), (0, vec!["a1@3".to_owned()]));
}

#[test]
fn what_a_list_cannot_decode_stays_as_we_wrote_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 7));
    bed.writer.begin();
    bed.writer.retain(&key("a"), uid(1));
    bed.commit(8);
    assert_eq!((bed.in_order(), bed.store.unconfirmed()), (vec!["+a1@7".into()], 0));
    bed.list(9, vec![thing("a", 1, 7)]);
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn an_end_at_the_version_of_the_last_state_ends_the_object_and_no_newer_one() {
    let mut bed = Bed::new();
    bed.list(9, vec![thing("a", 1, 3), thing("b", 2, 4), thing("c", 3, 5)]);
    bed.told();
    bed.deleted(thing("a", 1, 3));
    bed.deleted(thing("b", 2, 3));
    bed.deleted(thing("c", 4, 8));
    assert_eq!(bed.held(), ["b2@4", "c3@5"]);
    assert_eq!(bed.told(), ["-a1@3"]);
}
