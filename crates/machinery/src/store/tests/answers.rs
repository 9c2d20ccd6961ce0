//! Responses to own writes and deletes, concurrent with the watch.

use super::*;

#[test]
fn an_own_write_is_reported_at_once_and_its_echo_ignored() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 3)]);
    bed.reported();
    bed.wrote(thing("a", 1, 6));
    bed.wrote(thing("b", 2, 7));
    assert_eq!(bed.held(), ["a1@6", "b2@7"]);
    assert_eq!(bed.reported(), ["+b2@7", "~a1@3>6"]);
    bed.apply(thing("a", 1, 6));
    bed.apply(thing("b", 2, 7));
    assert_eq!((bed.reported().len(), bed.store.unconfirmed()), (0, 0));
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
fn the_deletion_of_an_earlier_namesake_does_not_restore_the_object_we_deleted() {
    for is_decodable in [true, false] {
        let mut bed = Bed::new();
        bed.list(5, vec![]);
        bed.wrote(thing("a", 2, 8));
        bed.apply(thing("a", 1, 6));
        bed.removed("a", 2);
        if is_decodable {
            bed.deleted(thing("a", 1, 7));
        } else {
            bed.writer.undecodable(&key("a"), uid(1), ResourceVersion::new(7), true);
        }
        bed.apply(thing("a", 2, 8));
        assert!(bed.held().is_empty());
        bed.deleted(thing("a", 2, 9));
        assert_eq!((bed.held().len(), bed.store.unconfirmed()), (0, 0));
    }
}

#[test]
fn an_unconfirmed_object_is_removed_although_a_namesake_was_shown() {
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
fn an_own_write_survives_an_earlier_deletion_event() {
    let mut bed = Bed::new();
    bed.list(5, vec![thing("a", 1, 5)]);
    bed.wrote(thing("a", 1, 7));
    bed.reported();
    // A selector can stop matching for a while.
    bed.deleted(thing("a", 1, 6));
    assert_eq!((bed.reported(), bed.held()), (vec![], vec!["a1@7".to_owned()]));
    bed.apply(thing("a", 1, 7));
    assert_eq!(bed.store.unconfirmed(), 0);
}

#[test]
fn handlers_receive_changes_in_the_order_of_their_visibility() {
    let (mut writer, store) = new::<Thing>(Vec::new());
    let (versions, reads) = (Arc::new(Mutex::new(Vec::new())), store.clone());
    let notified = versions.clone();
    writer.on_delta(move |delta, _| {
        let version = |thing: &Thing| thing.meta.version.number().unwrap();
        // A notified handler sees at least this version, and no other client's change comes in between.
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
