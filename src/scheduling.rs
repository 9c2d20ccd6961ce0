//! How Linux schedules this process: as batch work.
//!
//! Guarantees
//! - A batch thread that is woken does not interrupt another program; it waits until a processor is
//!   free, or until the scheduler's next tick at most. Its share of a busy processor stays the same
//!   (sched(7), `SCHED_BATCH`).
//! - A policy or a niceness that somebody has chosen for the process is left alone.
//! - Elsewhere than on Linux nothing is changed.
//!
//! Why: news of a change is worth more in company. Where processors are busy, usually with the very
//! API server that sends it, more of it has arrived by the time it is read, and caches are not cold
//! each time (docs/PERFORMANCE.md, "As batch work").

/// Why the process stays as it was. seccomp, for example, can forbid what is needed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its niceness could not be found out.
    #[error("not scheduled as batch work: its niceness is unknown: {0}")]
    Niceness(#[source] std::io::Error),
    /// Its policy could not be found out or set.
    #[cfg(target_os = "linux")]
    #[error("not scheduled as batch work: {0}")]
    Policy(#[source] thread_priority::Error),
}

/// Has Linux schedule this thread, and those that it starts from now on, as batch work. For the
/// beginning of `main`, before there is a runtime with threads of its own.
#[cfg(target_os = "linux")]
pub fn as_batch_work() -> Result<(), Error> {
    use thread_priority::{
        NormalThreadSchedulePolicy::{Batch, Other},
        ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id, thread_schedule_policy,
    };

    /// What thread-priority translates into a niceness of 0, from 0 to 99: it sets both.
    const NOT_NICER: u8 = 47;

    let policy = thread_schedule_policy().map_err(Error::Policy)?;
    let niceness = rustix::process::getpriority_process(None);
    let niceness = niceness.map_err(|error| Error::Niceness(error.into()))?;
    if policy != ThreadSchedulePolicy::Normal(Other) || niceness != 0 {
        return Ok(());
    }
    let value = ThreadPriorityValue::try_from(NOT_NICER).expect("47 is between 0 and 99");
    set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::Crossplatform(value),
        ThreadSchedulePolicy::Normal(Batch),
    )
    .map_err(Error::Policy)
}

/// Only Linux knows batch work.
#[cfg(not(target_os = "linux"))]
pub fn as_batch_work() -> Result<(), Error> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::process::{getpriority_process, nice};
    use thread_priority::{
        NormalThreadSchedulePolicy, ThreadSchedulePolicy, thread_schedule_policy,
    };

    use super::*;

    /// Policy and niceness, afterwards, of a thread that was `prepared`, and of one that it starts.
    /// Niceness is a thread's own on Linux, so no other test notices.
    fn afterwards(prepared: fn()) -> [(Option<ThreadSchedulePolicy>, Option<i32>); 2] {
        let seen = || (thread_schedule_policy().ok(), getpriority_process(None).ok());
        let thread = std::thread::spawn(move || {
            prepared();
            as_batch_work().expect("nothing forbids it here");
            [seen(), std::thread::spawn(seen).join().expect("it only looks")]
        });
        thread.join().expect("see above")
    }

    #[test]
    fn the_thread_and_those_that_it_starts_are_scheduled_as_batch_work_and_no_nicer() {
        let batch = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);
        assert_eq!(afterwards(|| {}), [(Some(batch), Some(0)); 2]);
    }

    #[test]
    fn a_niceness_that_somebody_chose_is_left_alone() {
        let nicer = afterwards(|| {
            nice(5).unwrap();
        });
        let other = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
        assert_eq!(nicer, [(Some(other), Some(5)); 2]);
    }
}
