//! Answers to our own writes and deletes beside the watch.

use super::*;

#[test]
fn our_own_write_is_visible_at_once_and_its_echo_is_ours() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 6));
    bed.store.wrote(thing("b", 2, 7));
    assert_eq!(bed.held(), ["a1@6", "b2@7"]);
    assert!(bed.told().is_empty());
    bed.apply(thing("a", 1, 6));
    bed.apply(thing("b", 2, 7));
    assert_eq!(bed.told(), ["+b2@7 own", "~a1@3>6 own"]);
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn a_change_of_somebody_else_before_our_write_is_told_though_it_is_older_than_what_we_hold() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 7));
    bed.apply(thing("a", 1, 6));
    assert_eq!(bed.told(), ["~a1@5>7"], "to the newest state, and not as ours");
    assert_eq!(bed.held(), ["a1@7"], "the view does not go back");
    bed.apply(thing("a", 1, 7));
    assert_eq!(bed.told(), ["~a1@7>7 own"]);
}

#[test]
fn after_a_relist_our_own_write_is_not_surely_all_that_happened() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 7));
    bed.list(8, vec![thing("a", 1, 7)]);
    assert_eq!(bed.told(), ["~a1@5>7"]);
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn a_list_from_before_our_writes_takes_none_of_them_back() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("d", 4, 4)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 7));
    bed.store.wrote(thing("b", 2, 8));
    bed.store.removed(&key("d"), uid(4));
    assert!(bed.list(6, vec![thing("a", 1, 5), thing("d", 4, 4)]));
    assert_eq!(bed.held(), ["a1@7", "b2@8"]);
    assert!(bed.told().is_empty());
    bed.apply(thing("a", 1, 7));
    bed.apply(thing("b", 2, 8));
    bed.deleted(thing("d", 4, 9));
    assert_eq!(bed.told(), ["+b2@8 own", "-d4@9 own", "~a1@5>7 own"]);
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn an_object_we_deleted_is_not_seen_again() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.removed(&key("a"), uid(1));
    assert!(bed.held().is_empty());
    bed.apply(thing("a", 1, 6));
    assert!(bed.held().is_empty());
    assert_eq!(bed.told(), ["~a1@5>6"], "somebody changed it before");
    bed.deleted(thing("a", 1, 7));
    assert_eq!(bed.told(), ["-a1@7 own"]);
    bed.apply(thing("a", 2, 8));
    assert_eq!(bed.held(), ["a2@8"]);
}

#[test]
fn the_late_answer_to_a_write_does_not_bring_back_what_we_deleted_since() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.removed(&key("a"), uid(1));
    bed.store.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 7));
    assert_eq!(bed.told(), ["-a1@7 own"]);
}

#[test]
fn our_write_is_not_all_that_happened_if_a_change_before_it_could_not_be_read() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told.clear();
    bed.store.wrote(thing("a", 1, 7));
    bed.writer.displaced(&key("a"), uid(1), |_| panic!("it is the same object"));
    bed.apply(thing("a", 1, 7));
    assert_eq!(bed.told(), ["~a1@5>7"], "somebody else's change is in it, too");
}

#[test]
fn what_we_made_and_somebody_deleted_in_a_gap_is_told() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.list(9, vec![]);
    assert_eq!(bed.told, ["+a1@6", "-a1@6"]);
    assert!(bed.held().is_empty());
}

#[test]
fn what_we_made_and_somebody_deleted_before_a_list_and_our_answer_is_told_with_the_next_news() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    // The create was 6, the delete 7, and the answer to the create is still under way.
    bed.list(9, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty(), "it is not brought back");
    bed.bookmark(9);
    assert_eq!(bed.told, ["+a1@6", "-a1@6"]);
    bed.told.clear();
    bed.bookmark(10);
    assert!(bed.told().is_empty());
}

#[test]
fn what_was_lost_is_told_before_what_we_made_again() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.list(9, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.store.wrote(thing("a", 2, 10));
    bed.apply(thing("a", 2, 10));
    assert_eq!(bed.told, ["+a1@6", "-a1@6", "+a2@10 own"]);
}

#[test]
fn an_answer_that_the_watch_has_overtaken_changes_nothing() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    bed.store.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty());
    bed.store.removed(&key("a"), uid(1));
    assert_eq!(bed.store.unconfirmed(), 0);
    bed.told.clear();
    bed.bookmark(8);
    assert!(bed.told().is_empty(), "handlers have heard of it already");
}
