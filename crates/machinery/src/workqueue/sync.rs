//! The only way to locks and clocks, so that loom and shuttle can replace them and drive the code
//! that ships (`hack/campaigns/interleavings.sh`).

#[cfg(loom)]
use loom::sync as imp;
#[cfg(shuttle)]
use shuttle::sync as imp;
#[cfg(not(any(loom, shuttle)))]
use std::sync as imp;

pub(super) use clock::{Clock, Sleep};
pub(super) use imp::Arc;

/// Nanoseconds since the queue was created: enough for 584 years.
pub(super) type Nanos = u64;

/// Number of times a thread tries a taken lock before it goes to sleep. In between it pauses, twice
/// as long each time: 128 processor pauses (1.5 to 3 µs where it was measured), then 256, up to
/// 2,048 (25 to 50 µs; 0.1 ms in all). Sleeping and being woken costs more than a short wait, also
/// for the thread that does the waking. The first pause is ten times as long as the lock is held,
/// because the holder's next rounds are faster if the lock, and all that it guards, stay in its
/// processor's caches meanwhile.
#[cfg(not(any(loom, shuttle)))]
const LOOKS: u32 = 5;

/// A lock without poisoning. It has cache lines of its own, two because the processor fetches them
/// in pairs: threads that have yet to take the lock read what is next to it.
#[repr(align(128))]
pub(super) struct Mutex<T>(
    #[cfg(not(any(loom, shuttle)))] parking_lot::Mutex<T>,
    #[cfg(any(loom, shuttle))] imp::Mutex<T>,
);

#[cfg(not(any(loom, shuttle)))]
pub(super) type MutexGuard<'a, T> = parking_lot::MutexGuard<'a, T>;
#[cfg(any(loom, shuttle))]
pub(super) type MutexGuard<'a, T> = imp::MutexGuard<'a, T>;

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Mutex<T> {
        #[cfg(not(any(loom, shuttle)))]
        return Mutex(parking_lot::Mutex::new(value));
        #[cfg(any(loom, shuttle))]
        return Mutex(imp::Mutex::new(value));
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        #[cfg(not(any(loom, shuttle)))]
        return (0..LOOKS)
            .find_map(|look| {
                let free = self.0.try_lock();
                if free.is_none() {
                    (0..128 << look).for_each(|_| std::hint::spin_loop());
                }
                free
            })
            .unwrap_or_else(|| self.0.lock());
        #[cfg(any(loom, shuttle))]
        return self.0.lock().expect("a model that panics is over");
    }
}

#[cfg(not(any(loom, shuttle)))]
mod clock {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll};
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Nanos;

    /// tokio's clock, so that paused time covers the queue.
    pub(in super::super) struct Clock(Instant);

    /// A tokio timer.
    pub(in super::super) struct Sleep(Pin<Box<tokio::time::Sleep>>);

    impl Clock {
        pub(in super::super) fn new() -> Clock {
            Clock(Instant::now())
        }

        pub(in super::super) fn now(&self) -> Nanos {
            self.0.elapsed().as_nanos() as Nanos
        }

        /// tokio rounds up to the millisecond; a timer never ends early.
        pub(in super::super) fn sleep_until(&self, at: Nanos) -> Sleep {
            Sleep(Box::pin(tokio::time::sleep_until(self.0 + Duration::from_nanos(at))))
        }
    }

    impl Sleep {
        pub(in super::super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
            self.0.as_mut().poll(context)
        }
    }
}

#[cfg(any(loom, shuttle))]
mod clock {
    use std::task::{Context, Poll, Waker};

    use super::{Arc, Mutex, Nanos};

    /// A clock that a model moves by hand.
    #[derive(Clone)]
    pub(in super::super) struct Clock(Arc<Mutex<(Nanos, Vec<(Nanos, Waker)>)>>);

    /// Ends once the clock has been moved far enough.
    pub(in super::super) struct Sleep {
        clock: Clock,
        at: Nanos,
    }

    impl Clock {
        pub(in super::super) fn new() -> Clock {
            Clock(Arc::new(Mutex::new((0, Vec::new()))))
        }

        pub(in super::super) fn now(&self) -> Nanos {
            self.0.lock().0
        }

        pub(in super::super) fn sleep_until(&self, at: Nanos) -> Sleep {
            Sleep { clock: self.clone(), at }
        }

        pub(in super::super) fn advance(&self, by: Nanos) {
            let mut inner = self.0.lock();
            inner.0 += by;
            let now = inner.0;
            let (due, later) = inner.1.drain(..).partition(|(at, _)| *at <= now);
            inner.1 = later;
            drop(inner);
            let due: Vec<(Nanos, Waker)> = due;
            due.into_iter().for_each(|(_, waker)| waker.wake());
        }
    }

    impl Sleep {
        pub(in super::super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
            let mut inner = self.clock.0.lock();
            if inner.0 >= self.at {
                return Poll::Ready(());
            }
            inner.1.push((self.at, context.waker().clone()));
            Poll::Pending
        }
    }
}
