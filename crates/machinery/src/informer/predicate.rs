//! Changes that are worth a handler's time.
//!
//! An update from an object to itself passes every predicate: what changed is not known.

use std::sync::Arc;

use crate::object::Object;
use crate::store::Delta;

/// Everything except changes that leave `metadata.generation` as it was, such as writes to status
/// and metadata. Kinds for which the API server keeps no generation (it stays 0) always pass.
pub fn generation_changed<V: Object>(delta: &Delta<V>) -> bool {
    changed(delta, |old, new| {
        let (old, new) = (old.meta(), new.meta());
        new.generation == 0
            || old.generation != new.generation
            // Deletion changes the generation of most kinds, but not of all.
            || old.deleting != new.deleting
    })
}

/// Everything except changes that leave the labels kept by the view as they were.
pub fn labels_changed<V: Object>(delta: &Delta<V>) -> bool {
    changed(delta, |old, new| old.meta().labels != new.meta().labels)
}

/// Everything except changes that leave the annotations kept by the view as they were.
pub fn annotations_changed<V: Object>(delta: &Delta<V>) -> bool {
    changed(delta, |old, new| old.meta().annotations != new.meta().annotations)
}

fn changed<V>(delta: &Delta<V>, differ: impl Fn(&V, &V) -> bool) -> bool {
    match delta {
        Delta::Updated { old, new, .. } => Arc::ptr_eq(old, new) || differ(old, new),
        Delta::Added(..) | Delta::Deleted(..) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Meta;
    use crate::object::fixtures::Thing;

    fn update(change: impl Fn(&mut Meta)) -> Delta<Thing> {
        let (mut old, mut new) = (Meta::default(), Meta::default());
        (old.generation, new.generation) = (1, 1);
        change(&mut new);
        let (old, new) = (Arc::new(Thing { meta: old }), Arc::new(Thing { meta: new }));
        Delta::Updated { old, new, origin: None }
    }

    #[test]
    fn a_status_write_is_no_change_of_generation_and_a_deletion_is() {
        assert!(!generation_changed(&update(|_| {})));
        assert!(generation_changed(&update(|new| new.generation = 2)));
        assert!(generation_changed(&update(|new| new.deleting = true)));
        assert!(generation_changed(&update(|new| new.generation = 0)));
    }

    #[test]
    fn labels_and_annotations_are_told_apart() {
        let labelled = update(|new| new.labels = [("a", "b")].into_iter().collect());
        assert!(labels_changed(&labelled) && !annotations_changed(&labelled));
    }

    #[test]
    fn an_update_that_does_not_show_what_changed_passes() {
        let mut meta = Meta::default();
        meta.generation = 1;
        let thing = Arc::new(Thing { meta });
        let again = Delta::Updated { old: thing.clone(), new: thing, origin: None };
        assert!(generation_changed(&again) && labels_changed(&again));
        assert!(annotations_changed(&again));
    }
}
