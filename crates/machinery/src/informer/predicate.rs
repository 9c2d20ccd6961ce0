//! Which changes are worth a handler's time.

use crate::object::Object;
use crate::store::{Delta, Origin};

/// Everything except changes that leave `metadata.generation` as it was, such as writes to status
/// and metadata. Kinds for which the API server keeps no generation (it stays 0) always pass.
pub fn generation_changed<V: Object>(delta: &Delta<V>) -> bool {
    match delta {
        Delta::Updated { old, new, .. } => {
            let (old, new) = (old.meta(), new.meta());
            new.generation == 0
                || old.generation != new.generation
                // Deletion changes the generation of most kinds, but not of all.
                || old.deleting != new.deleting
        }
        Delta::Added(..) | Delta::Deleted(..) => true,
    }
}

/// Everything except changes that leave the labels kept by the view as they were.
pub fn labels_changed<V: Object>(delta: &Delta<V>) -> bool {
    match delta {
        Delta::Updated { old, new, .. } => old.meta().labels != new.meta().labels,
        Delta::Added(..) | Delta::Deleted(..) => true,
    }
}

/// Everything except changes that leave the annotations kept by the view as they were.
pub fn annotations_changed<V: Object>(delta: &Delta<V>) -> bool {
    match delta {
        Delta::Updated { old, new, .. } => old.meta().annotations != new.meta().annotations,
        Delta::Added(..) | Delta::Deleted(..) => true,
    }
}

/// Everything except the echo of our own writes.
pub fn not_own_write<V>(delta: &Delta<V>) -> bool {
    let (Delta::Added(_, origin) | Delta::Updated { origin, .. } | Delta::Deleted(_, origin)) =
        delta;
    *origin != Origin::Own
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::object::Meta;
    use crate::object::fixtures::Thing;

    fn update(change: impl Fn(&mut Meta)) -> Delta<Thing> {
        let (mut old, mut new) = (Meta::default(), Meta::default());
        (old.generation, new.generation) = (1, 1);
        change(&mut new);
        let (old, new) = (Arc::new(Thing { meta: old }), Arc::new(Thing { meta: new }));
        Delta::Updated { old, new, origin: Origin::Server }
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
    fn only_the_echo_of_an_own_write_is_left_out() {
        let thing = Arc::new(Thing { meta: Meta::default() });
        assert!(!not_own_write(&Delta::Added(thing.clone(), Origin::Own)));
        assert!(not_own_write(&Delta::Deleted(thing, Origin::Server)));
    }
}
