//! Who is told of changes.

use crate::store::Delta;

/// Is told what a reflector changed in the store. Called in the reflector's task: it must neither
/// block nor panic.
pub trait Sink<V>: Send + 'static {
    /// The store has changed; its writer is locked during the call. `initial` is true while the
    /// first list is being taken over.
    fn told(&mut self, delta: Delta<V>, initial: bool);

    /// The first list has been taken over: everything in it was reported, and the writer is free
    /// again.
    fn synced(&mut self);
}
