//! Answers to our own writes and deletes that a list meets.

use super::*;

#[test]
fn a_list_from_before_our_writes_takes_none_of_them_back() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("d", 4, 4)]);
    bed.wrote(thing("a", 1, 7));
    bed.wrote(thing("b", 2, 8));
    bed.removed("d", 4);
    bed.told();
    assert!(bed.list(6, vec![thing("a", 1, 5), thing("d", 4, 4)]));
    assert_eq!(bed.held(), ["a1@7", "b2@8"]);
    assert!(bed.told().is_empty());
    bed.apply(thing("a", 1, 7));
    bed.apply(thing("b", 2, 8));
    bed.deleted(thing("d", 4, 9));
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn what_we_created_and_somebody_deleted_in_a_gap_is_reported() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 6));
    bed.list(9, vec![]);
    assert_eq!(bed.in_order(), ["+a1@6", "-a1@6"]);
    assert!(bed.held().is_empty());
}

#[test]
fn what_we_created_and_somebody_deleted_before_a_list_and_our_answer_is_reported() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    // The create was 6, the delete 7, and the answer to the create is still under way.
    bed.list(9, vec![]);
    bed.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty(), "it is not brought back");
    assert_eq!(bed.in_order(), ["+a1@6", "-a1@6"], "its author believes in it");
}

#[test]
fn our_write_during_a_relist_is_neither_hidden_nor_swept() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("c", 3, 5)]);
    bed.writer.begin();
    bed.writer.listed(thing("a", 1, 6));
    bed.wrote(thing("a", 1, 8));
    bed.wrote(thing("b", 2, 9));
    bed.wrote(thing("c", 3, 10));
    bed.writer.listed(thing("c", 3, 5));
    assert_eq!(bed.held(), ["a1@8", "b2@9", "c3@10"]);
    bed.told();
    assert!(bed.commit(7));
    assert_eq!(bed.held(), ["a1@8", "b2@9", "c3@10"]);
    assert!(bed.told().is_empty(), "a6 is part of a8");
}

#[test]
fn what_was_listed_as_held_before_our_write_and_delete_stays_as_we_left_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.writer.begin();
    bed.writer.listed(thing("a", 1, 3));
    bed.writer.listed(thing("b", 2, 4));
    bed.wrote(thing("a", 1, 6));
    bed.removed("b", 2);
    bed.commit(5);
    assert_eq!(bed.held(), ["a1@6"]);
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("b", 2, 7));
    assert_eq!((bed.held(), bed.store.unconfirmed()), (vec!["a1@6".to_owned()], 0));
}

#[test]
fn what_we_made_and_deleted_after_a_list_was_taken_is_not_seen_again() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.writer.begin();
    bed.wrote(thing("a", 1, 11));
    bed.removed("a", 1);
    bed.commit(10);
    bed.apply(thing("a", 1, 11));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 12));
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn what_we_write_while_a_list_cannot_decode_it_is_not_lost() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 6));
    bed.writer.begin();
    bed.writer.retain(&key("a"), uid(1));
    bed.wrote(thing("a", 1, 7));
    bed.commit(8);
    assert_eq!(bed.in_order(), ["+a1@6", "~a1@6>7"]);
    assert_eq!(bed.held(), ["a1@7"]);
}

#[test]
fn what_we_deleted_is_not_seen_again_though_a_list_could_not_decode_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 1, 6));
    bed.removed("a", 1);
    bed.writer.begin();
    bed.writer.retain(&key("a"), uid(1));
    bed.commit(8);
    bed.apply(thing("a", 1, 9));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 10));
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn a_namesake_in_a_list_ends_what_we_wrote_before_it() {
    let mut bed = Bed::new();
    bed.list(2, vec![thing("a", 1, 1)]);
    bed.wrote(thing("a", 1, 3));
    bed.list(10, vec![thing("a", 3, 7)]);
    assert_eq!(bed.in_order(), ["+a1@1", "~a1@1>3", "-a1@3", "+a3@7"]);
    bed.removed("a", 1);
    assert_eq!((bed.held(), bed.store.unconfirmed()), (vec!["a3@7".into()], 0));
}
