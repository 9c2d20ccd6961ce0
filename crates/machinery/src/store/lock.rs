//! The lock around what readers see. With `--cfg lock_holds` every use of it is timed, for
//! hack/lock-holds.sh; otherwise it is simply parking_lot's.

#[cfg(lock_holds)]
pub(super) use clocked::RwLock;
#[cfg(lock_holds)]
pub use clocked::{Hold, observe, processor_time};
#[cfg(not(lock_holds))]
pub(super) use parking_lot::RwLock;

#[cfg(lock_holds)]
mod clocked {
    use std::ops::{Deref, DerefMut};
    use std::sync::OnceLock;
    use std::time::{Duration, Instant};

    use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
    use rustix::time::{ClockId, clock_gettime};

    static OBSERVER: OnceLock<fn(&Hold)> = OnceLock::new();

    /// One use of a store's lock, as passed to [`observe`]'s function.
    #[derive(Debug, Clone, Copy)]
    pub struct Hold {
        /// Whether nobody else could hold it at the same time.
        pub exclusive: bool,
        /// How long the wait for it was; `None` if it was free.
        pub waited: Option<Duration>,
        /// How long it was held, including the release.
        pub held: Duration,
        /// The processor time that the holder used meanwhile: `held` without the time in which the
        /// kernel ran something else. The two clocks cost some 300 ns of it.
        pub worked: Duration,
    }

    /// Calls `observer` after each use of any store's lock, in the thread that used it, once the
    /// lock is free again. Only the first call of this function counts.
    pub fn observe(observer: fn(&Hold)) {
        let _ = OBSERVER.set(observer);
    }

    pub(in crate::store) struct RwLock<T>(parking_lot::RwLock<T>);

    /// Fields are dropped in order: the clock stops once the lock is free again.
    pub(in crate::store) struct Guard<G> {
        guard: G,
        _clock: Clock,
    }

    struct Clock {
        exclusive: bool,
        waited: Option<Duration>,
        began: Instant,
        worked: Duration,
    }

    // === impl RwLock ===

    impl<T> RwLock<T> {
        pub(in crate::store) fn new(inner: T) -> RwLock<T> {
            RwLock(parking_lot::RwLock::new(inner))
        }

        pub(in crate::store) fn read(&self) -> Guard<RwLockReadGuard<'_, T>> {
            Guard::get(false, self.0.try_read(), || self.0.read())
        }

        pub(in crate::store) fn write(&self) -> Guard<RwLockWriteGuard<'_, T>> {
            Guard::get(true, self.0.try_write(), || self.0.write())
        }
    }

    // === impl Guard ===

    impl<G> Guard<G> {
        fn get(exclusive: bool, at_once: Option<G>, wait: impl FnOnce() -> G) -> Guard<G> {
            let asked = Instant::now();
            let (guard, waited) = match at_once {
                Some(guard) => (guard, None),
                None => (wait(), Some(asked.elapsed())),
            };
            let _clock =
                Clock { exclusive, waited, began: Instant::now(), worked: processor_time() };
            Guard { guard, _clock }
        }
    }

    impl<G: Deref> Deref for Guard<G> {
        type Target = G::Target;
        fn deref(&self) -> &G::Target {
            &self.guard
        }
    }

    impl<G: DerefMut> DerefMut for Guard<G> {
        fn deref_mut(&mut self) -> &mut G::Target {
            &mut self.guard
        }
    }

    // === impl Clock ===

    impl Drop for Clock {
        fn drop(&mut self) {
            let Clock { exclusive, waited, .. } = *self;
            let worked = processor_time().saturating_sub(self.worked);
            let held = self.began.elapsed();
            if let Some(observer) = OBSERVER.get() {
                observer(&Hold { exclusive, waited, held, worked });
            }
        }
    }

    /// The processor time used by this thread so far.
    pub fn processor_time() -> Duration {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or_default())
    }
}
