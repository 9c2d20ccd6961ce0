//! Who is told of changes.

use crate::store::Delta;

/// Is told what a reflector changed in the store. Called in the reflector's task: it must not block,
/// and must not panic.
pub trait Sink<V>: Send + 'static {
    /// The store has changed; its writer is held meanwhile. `initial` while the first list is taken
    /// over.
    fn told(&mut self, delta: Delta<V>, initial: bool);

    /// The first list was taken over; everything in it was told, and the writer is free again.
    fn synced(&mut self);
}
