//! Answers to our own writes and deletes while a list is under way, or could not read the object.

use super::*;

#[test]
fn our_write_during_a_relist_is_neither_hidden_nor_swept() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("c", 3, 5)]);
    bed.told.clear();
    bed.writer.begin();
    bed.writer.listed(thing("a", 1, 6));
    bed.store.wrote(thing("a", 1, 8));
    bed.store.wrote(thing("b", 2, 9));
    bed.store.wrote(thing("c", 3, 10));
    bed.writer.listed(thing("c", 3, 5));
    assert_eq!(bed.held(), ["a1@8", "b2@9", "c3@10"]);
    assert!(bed.commit(7));
    assert_eq!(bed.held(), ["a1@8", "b2@9", "c3@10"]);
    assert_eq!(bed.told(), ["~a1@5>8"], "somebody else wrote a6");
}

#[test]
fn our_delete_that_is_answered_while_a_list_is_settled_leaves_nothing_behind() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    let (name, number) =
        bed.list_and_answer(9, [("a", 1, 7), ("b", 2, 8)], |store, name, number| {
            store.removed(&key(name), uid(number));
        });
    assert!(bed.store.shared().state.read().is_settled());
    bed.deleted(thing(name, number, 10));
    bed.told.clear();
    let left = if name == "a" { thing("b", 2, 8) } else { thing("a", 1, 7) };
    bed.list(11, vec![left]);
    assert!(bed.told().is_empty());
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (1, 0));
}

#[test]
fn what_we_made_and_deleted_after_a_list_was_taken_is_not_seen_again() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.writer.begin();
    bed.store.wrote(thing("a", 1, 11));
    bed.store.removed(&key("a"), uid(1));
    bed.commit(10);
    bed.apply(thing("a", 1, 11));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 12));
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn a_change_that_could_not_be_read_is_not_hidden_by_our_write_after_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5), thing("b", 2, 5)]);
    bed.told.clear();
    bed.writer.displaced(&key("a"), uid(1), |_| panic!("it is the same object"));
    bed.store.wrote(thing("a", 1, 7));
    bed.apply(thing("a", 1, 7));
    assert_eq!(bed.told(), ["~a1@5>7"], "somebody else's 6 is in it, too");
    bed.writer.begin();
    bed.writer.listed(thing("a", 1, 7));
    bed.writer.keep(&key("b"), uid(2));
    bed.commit(9);
    bed.store.wrote(thing("b", 2, 10));
    bed.apply(thing("b", 2, 10));
    assert_eq!(bed.told(), ["~b2@5>10"], "so it is with what a list shows");
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn what_we_write_while_a_list_cannot_read_it_is_not_lost() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.writer.begin();
    bed.writer.keep(&key("a"), uid(1));
    bed.store.wrote(thing("a", 1, 7));
    bed.commit(8);
    assert_eq!((bed.told(), bed.held()), (vec!["+a1@7".to_owned()], vec!["a1@7".to_owned()]));
}

#[test]
fn what_we_write_while_a_list_is_settled_hides_nothing_that_the_next_one_shows() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    let (name, number) =
        bed.list_and_answer(9, [("a", 1, 7), ("b", 2, 8)], |store, name, number| {
            store.wrote(thing(name, number, 12));
        });
    bed.told.clear();
    // Somebody else has written the two at 10 and 11.
    bed.list(11, vec![thing("a", 1, 10), thing("b", 2, 11)]);
    assert!(bed.told().contains(&format!("~{name}{number}@12>12")));
    assert_eq!(bed.store.unconfirmed(), 1);
}

#[test]
fn our_delete_that_is_answered_after_a_list_without_the_object_is_not_remembered() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3), thing("b", 2, 4)]);
    bed.store.wrote(thing("a", 1, 6));
    bed.store.wrote(thing("b", 2, 7));
    bed.writer.begin();
    let store = bed.store.clone();
    bed.writer.commit(ResourceVersion::new(9), |_| {
        store.removed(&key("a"), uid(1));
        store.removed(&key("b"), uid(2));
    });
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn the_end_of_an_object_that_cannot_be_read_leaves_what_we_did_after_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 2, 8));
    bed.apply(thing("a", 1, 6));
    bed.store.removed(&key("a"), uid(2));
    bed.told.clear();
    bed.writer.vanished(&key("a"), ResourceVersion::new(7), |delta| {
        assert_eq!(short(&delta), "-a1@6");
    });
    bed.apply(thing("a", 2, 8));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 2, 9));
    assert_eq!(bed.told(), ["+a2@8 own", "-a2@9 own"]);
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn our_delete_hides_nothing_that_the_list_being_settled_has_just_shown() {
    let mut bed = Bed::new();
    // A list is settled one object at a time unless it is the first news of any kind.
    bed.store.wrote(thing("c", 3, 4));
    let (name, number) =
        bed.list_and_answer(2, [("a", 2, 2), ("b", 1, 1)], |store, name, number| {
            store.removed(&key(name), uid(number));
        });
    bed.apply(thing("c", 3, 4));
    let went = if name == "a" { "-a2@2" } else { "-b1@1" };
    let others = bed.told().into_iter().filter(|told| !told.ends_with("own"));
    assert_eq!(others.collect::<Vec<_>>(), ["+a2@2", "+b1@1", went]);
    bed.deleted(thing(name, number, 5));
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn what_we_delete_while_a_list_is_settled_is_reported_once() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    for (name, number) in [("a", 1), ("b", 2)] {
        bed.store.wrote(thing(name, number, 5 + number));
        bed.store.removed(&key(name), uid(number));
    }
    let (name, number) =
        bed.list_and_answer(12, [("a", 3, 10), ("b", 4, 11)], |store, name, number| {
            store.removed(&key(name), uid(number));
        });
    bed.deleted(thing(name, number, 13));
    assert_eq!(bed.told().len(), 3, "two that came, one that went");
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn our_delete_that_is_answered_after_a_list_with_a_namesake_is_not_remembered() {
    let mut bed = Bed::new();
    bed.list(2, vec![thing("a", 1, 1), thing("b", 2, 2)]);
    bed.store.wrote(thing("a", 1, 3));
    bed.store.wrote(thing("b", 2, 4));
    let old = |name: &str| if name == "a" { 1 } else { 2 };
    bed.list_and_answer(10, [("a", 3, 7), ("b", 4, 8)], |store, name, _| {
        store.removed(&key(name), uid(old(name)));
    });
    assert_eq!((bed.held(), bed.store.unconfirmed()), (vec!["a3@7".into(), "b4@8".into()], 0));
}

#[test]
fn what_we_deleted_is_not_seen_again_though_a_list_could_not_read_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.store.wrote(thing("a", 1, 6));
    bed.store.removed(&key("a"), uid(1));
    bed.writer.begin();
    bed.writer.keep(&key("a"), uid(1));
    bed.commit(8);
    bed.apply(thing("a", 1, 9));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 1, 10));
    assert_eq!(
        (bed.told(), bed.store.unconfirmed()),
        (vec!["+a1@9".into(), "-a1@10 own".into()], 0)
    );
}
