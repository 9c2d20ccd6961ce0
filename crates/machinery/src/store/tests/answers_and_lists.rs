//! Answers to our own writes and deletes that a list meets.

use super::*;

#[test]
fn an_older_list_undoes_no_own_write() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("d", 4, 4)]);
    bed.wrote(thing("a", 1, 7));
    bed.wrote(thing("b", 2, 8));
    bed.removed("d", 4);
    bed.reported();
    assert!(bed.list(6, vec![thing("a", 1, 5), thing("d", 4, 4)]));
    assert_eq!(bed.held(), ["a1@7", "b2@8"]);
    assert!(bed.reported().is_empty());
    bed.apply(thing("a", 1, 7));
    bed.apply(thing("b", 2, 8));
    bed.deleted(thing("d", 4, 9));
    assert_eq!((bed.reported().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn a_list_reports_the_deletion_of_a_created_object() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 6));
    bed.list(9, vec![]);
    assert_eq!(bed.in_order(), ["+a1@6", "-a1@6"]);
    assert!(bed.held().is_empty());
}

#[test]
fn a_late_response_reports_an_object_that_was_deleted_since() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    // The create was 6, the delete 7, and the response to the create is still in transit.
    bed.list(9, vec![]);
    bed.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty(), "it is not brought back");
    assert_eq!(bed.in_order(), ["+a1@6", "-a1@6"], "its author believes in it");
}

#[test]
fn a_relist_neither_hides_nor_removes_a_concurrent_write() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("c", 3, 5)]);
    bed.writer.begin_replace();
    bed.writer.stage(thing("a", 1, 6));
    bed.wrote(thing("a", 1, 8));
    bed.wrote(thing("b", 2, 9));
    bed.wrote(thing("c", 3, 10));
    bed.writer.stage(thing("c", 3, 5));
    assert_eq!(bed.held(), ["a1@8", "b2@9", "c3@10"]);
    bed.reported();
    assert!(bed.commit(7));
    assert_eq!(bed.held(), ["a1@8", "b2@9", "c3@10"]);
    assert!(bed.reported().is_empty(), "a6 is part of a8");
}

#[test]
fn a_list_does_not_override_writes_made_after_its_items() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.writer.begin_replace();
    bed.writer.stage(thing("a", 1, 3));
    bed.writer.stage(thing("b", 2, 4));
    bed.wrote(thing("a", 1, 6));
    bed.removed("b", 2);
    bed.commit(5);
    assert_eq!(bed.held(), ["a1@6"]);
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("b", 2, 7));
    assert_eq!((bed.held(), bed.store.unconfirmed()), (vec!["a1@6".to_owned()], 0));
}

#[test]
fn an_object_created_and_deleted_during_a_list_does_not_reappear() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.writer.begin_replace();
    bed.wrote(thing("a", 1, 11));
    bed.removed("a", 1);
    bed.commit(10);
    bed.apply(thing("a", 1, 11));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 12));
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn a_write_during_a_list_with_its_undecodable_state_is_kept() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 6));
    bed.writer.begin_replace();
    bed.writer.keep(&key("a"), uid(1));
    bed.wrote(thing("a", 1, 7));
    bed.commit(8);
    assert_eq!(bed.in_order(), ["+a1@6", "~a1@6>7"]);
    assert_eq!(bed.held(), ["a1@7"]);
}

#[test]
fn a_deleted_object_does_not_reappear_after_an_undecodable_item() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 6));
    bed.removed("a", 1);
    bed.writer.begin_replace();
    bed.writer.keep(&key("a"), uid(1));
    bed.commit(8);
    bed.apply(thing("a", 1, 9));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 10));
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn a_listed_namesake_replaces_an_earlier_own_write() {
    let mut bed = Bed::new();
    bed.list(2, vec![thing("a", 1, 1)]);
    bed.wrote(thing("a", 1, 3));
    bed.list(10, vec![thing("a", 3, 7)]);
    assert_eq!(bed.in_order(), ["+a1@1", "~a1@1>3", "-a1@3", "+a3@7"]);
    bed.removed("a", 1);
    assert_eq!((bed.held(), bed.store.unconfirmed()), (vec!["a3@7".into()], 0));
}
