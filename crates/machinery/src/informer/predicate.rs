//! Predicates of changes.

use crate::object::Object;
use crate::store::Delta;

/// Rejects updates that keep `metadata.generation`, such as writes of status and metadata. Kinds without a
/// generation (it stays 0) always pass.
pub fn generation_changed<V: Object>(delta: &Delta<V>) -> bool {
    let Delta::Updated { old, new } = delta else { return true };
    let (old, new) = (old.meta(), new.meta());
    new.generation == 0
        || old.generation != new.generation
        // Deletion changes the generation of most kinds, but not of all.
        || old.is_terminating != new.is_terminating
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
        Delta::Updated { old: Arc::new(Thing { meta: old }), new: Arc::new(Thing { meta: new }) }
    }

    #[test]
    fn a_status_write_is_no_change_of_generation_and_a_deletion_is() {
        assert!(!generation_changed(&update(|_| {})));
        assert!(generation_changed(&update(|new| new.generation = 2)));
        assert!(generation_changed(&update(|new| new.is_terminating = true)));
        assert!(generation_changed(&update(|new| new.generation = 0)));
    }
}
