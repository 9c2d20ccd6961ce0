//! Answers to our own writes and deletes beside the watch.

use super::*;

#[test]
fn our_own_write_is_visible_and_reported_at_once_and_its_repetition_is_nothing() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.told();
    bed.wrote(thing("a", 1, 6));
    bed.wrote(thing("b", 2, 7));
    assert_eq!(bed.held(), ["a1@6", "b2@7"]);
    assert_eq!(bed.told(), ["+b2@7", "~a1@3>6"]);
    bed.apply(thing("a", 1, 6));
    bed.apply(thing("b", 2, 7));
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn a_change_of_somebody_else_before_our_write_is_part_of_what_was_reported() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.wrote(thing("a", 1, 7));
    bed.told();
    bed.apply(thing("a", 1, 6));
    assert!(bed.told().is_empty());
    assert_eq!(bed.held(), ["a1@7"], "the view does not go back");
    bed.apply(thing("a", 1, 7));
    assert!(bed.told().is_empty());
}

#[test]
fn of_two_answers_in_the_wrong_order_the_newer_one_stays() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.wrote(thing("a", 1, 7));
    bed.wrote(thing("a", 1, 6));
    assert_eq!(bed.in_order(), ["+a1@5", "~a1@5>7"]);
    bed.apply(thing("a", 1, 6));
    bed.apply(thing("a", 1, 7));
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn an_object_we_deleted_is_not_seen_again() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.told();
    bed.removed("a", 1);
    assert_eq!((bed.told(), bed.held().len()), (vec!["-a1@5".to_owned()], 0));
    bed.apply(thing("a", 1, 6));
    assert!(bed.held().is_empty());
    assert!(bed.told().is_empty(), "somebody changed it before");
    bed.deleted(thing("a", 1, 7));
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
    bed.apply(thing("a", 2, 8));
    assert_eq!(bed.held(), ["a2@8"]);
}

#[test]
fn the_late_answer_to_a_write_does_not_bring_back_what_was_deleted_since() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.removed("a", 1);
    bed.wrote(thing("a", 1, 6));
    assert!(bed.held().is_empty());
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn the_late_answer_about_an_object_whose_name_is_taken_changes_nothing() {
    let mut bed = Bed::new();
    bed.wrote(thing("a", 2, 8));
    bed.told();
    bed.wrote(thing("a", 1, 6));
    assert_eq!((bed.told().len(), bed.held()), (0, vec!["a2@8".to_owned()]));
}

#[test]
fn what_we_created_and_deleted_does_not_uncover_what_was_there_before() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 2, 8));
    bed.removed("a", 2);
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    assert!(bed.held().is_empty());
    bed.apply(thing("a", 2, 8));
    bed.deleted(thing("a", 2, 9));
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn what_the_watch_never_shows_goes_although_it_shows_an_earlier_namesake() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.wrote(thing("a", 2, 9));
    bed.apply(thing("a", 1, 6));
    bed.deleted(thing("a", 1, 7));
    assert_eq!(bed.held(), ["a2@9"]);
    bed.bookmark(20);
    assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn the_end_of_an_object_that_cannot_be_decoded_leaves_what_was_done_after_it() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.wrote(thing("a", 2, 8));
    bed.apply(thing("a", 1, 6));
    bed.removed("a", 2);
    bed.told();
    bed.writer.delete_undecodable(&key("a"), uid(1), ResourceVersion::new(7));
    bed.apply(thing("a", 2, 8));
    assert!(bed.held().is_empty());
    bed.deleted(thing("a", 2, 9));
    assert_eq!((bed.told().len(), bed.store.unconfirmed()), (0, 0));
}

#[test]
fn an_answer_that_the_watch_has_overtaken_is_not_stored() {
    let mut bed = Bed::new();
    bed.list(5, vec![]);
    bed.apply(thing("a", 1, 6));
    bed.told();
    bed.wrote(thing("a", 1, 6));
    assert!(bed.told().is_empty(), "it is as its author believes");
    bed.deleted(thing("a", 1, 7));
    bed.told();
    bed.wrote(thing("a", 1, 6));
    assert_eq!(bed.in_order(), ["+a1@6", "-a1@6"], "its author believes in it");
    bed.store.apply_read(thing("a", 1, 6));
    bed.removed("a", 1);
    assert_eq!((bed.told().len(), bed.held().len(), bed.store.unconfirmed()), (0, 0, 0));
}

#[test]
fn what_we_wrote_after_somebody_else_took_it_out_of_sight_stays() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.wrote(thing("a", 1, 7));
    bed.told();
    // A selector can stop matching for a while.
    bed.deleted(thing("a", 1, 6));
    assert_eq!((bed.told(), bed.held()), (vec![], vec!["a1@7".to_owned()]));
    bed.apply(thing("a", 1, 7));
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn handlers_hear_of_answers_and_of_the_watch_in_the_order_in_which_they_became_visible() {
    let (mut writer, store) = new::<Thing>(Vec::new());
    let (versions, reads) = (Arc::new(Mutex::new(Vec::new())), store.clone());
    let notified = versions.clone();
    writer.on_delta(move |delta, _| {
        let version = |thing: &Thing| thing.meta.version.number().unwrap();
        // Whoever is notified sees at least this, and no foreign change slips in between.
        let sees = version(&reads.get(delta.object().key()).unwrap());
        notified.lock().push((version(delta.object()), sees));
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (1..=2000).filter(|at| at % 2 == 0).for_each(|at| writer.apply(thing("a", 1, at)));
        });
        scope.spawn(|| {
            for at in (1..=2000).filter(|at| at % 2 == 1) {
                store.apply_response(thing("a", 1, at));
            }
        });
    });
    let versions = versions.lock();
    assert!(versions.iter().all(|(reported, seen)| reported == seen));
    assert!(versions.windows(2).all(|two| two[0].0 <= two[1].0), "out of order");
    assert_eq!(versions.last().unwrap().0, 2000);
}
