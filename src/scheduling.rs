//! How Linux schedules this process: as batch work.
//!
//! Guarantees
//! - A batch thread that is woken does not interrupt another program: it waits until a processor is
//!   free, or the other program's turn is over (sched(7), `SCHED_BATCH`). Its niceness, and with it
//!   its share of a busy processor, stays the same.
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

    /// Policy and niceness of a thread. Niceness is a thread's own on Linux, so that no other test
    /// notices what happens here.
    type Scheduled = (Option<ThreadSchedulePolicy>, Option<i32>);

    const OTHER: ThreadSchedulePolicy =
        ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);
    const BATCH: ThreadSchedulePolicy =
        ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Batch);

    fn scheduled() -> Scheduled {
        (thread_schedule_policy().ok(), getpriority_process(None).ok())
    }

    /// A thread that is nicer by so much: what it was before, what it is after, and what a thread
    /// is that it starts.
    fn thread(nicer: i32) -> [Scheduled; 3] {
        let thread = std::thread::spawn(move || {
            nice(nicer).expect("everybody may be nicer");
            let before = scheduled();
            as_batch_work().expect("nothing forbids it here");
            [before, scheduled(), std::thread::spawn(scheduled).join().expect("it only looks")]
        });
        thread.join().expect("as it says above")
    }

    #[test]
    fn a_thread_and_those_that_it_starts_are_scheduled_as_batch_work_and_no_nicer() {
        let [before, after, started] = thread(0);
        if before != (Some(OTHER), Some(0)) {
            eprintln!("NOT CHECKED: batch work: the tests run as {before:?}, which is left alone");
            return;
        }
        assert_eq!([after, started], [(Some(BATCH), Some(0)); 2]);
    }

    #[test]
    fn a_niceness_that_somebody_chose_is_left_alone() {
        let [before, after, started] = thread(5);
        assert_eq!([after, started], [before; 2]);
    }
}
