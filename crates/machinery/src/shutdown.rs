//! Shutdown of the process.
//!
//! Guarantees
//! - One [`Shutdown`] per process; all clones start it at the same moment.
//! - The first SIGTERM or SIGINT starts an orderly shutdown. A second signal of either kind exits immediately, with the
//!   code that a shell reports for a process killed by it: 143 for SIGTERM, 130 for SIGINT. A separate thread handles
//!   signals, so this works even while all threads of the runtime are blocked.
//! - A request is never missed: [`Shutdown::requested`] returns immediately after it.

use std::future::Future;
use std::io;

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// 128 + SIGTERM.
const EXIT_TERM: i32 = 143;
/// 128 + SIGINT.
const EXIT_INT: i32 = 130;

/// Signal to stop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Handles SIGTERM and SIGINT from now on until the process ends.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn from_signals() -> io::Result<Shutdown> {
        let shutdown = Shutdown::manual();
        let signals = [SignalKind::terminate(), SignalKind::interrupt()];
        on_a_thread(signals, shutdown.clone(), |code| std::process::exit(code))?;
        Ok(shutdown)
    }

    /// Creates a shutdown that only [`Shutdown::request`] starts.
    pub fn manual() -> Shutdown {
        Shutdown(CancellationToken::new())
    }

    /// Creates a shutdown that starts with `self`, or earlier by its own [`Shutdown::request`].
    pub fn child(&self) -> Shutdown {
        Shutdown(self.0.child_token())
    }

    /// Starts the shutdown.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Returns whether the shutdown has started.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the shutdown has started.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.clone().cancelled_owned()
    }
}

/// Handles the signals on a thread with its own runtime.
fn on_a_thread(
    [term, int]: [SignalKind; 2],
    shutdown: Shutdown,
    exit: impl Fn(i32) + Send + 'static,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let context = runtime.enter();
    let (term, int) = (signal(term)?, signal(int)?);
    drop(context);
    let work = move || runtime.block_on(listen(term, int, shutdown, exit));
    std::thread::Builder::new().name("signals".to_owned()).spawn(work).map(drop)
}

async fn listen(mut term: Signal, mut int: Signal, shutdown: Shutdown, exit: impl Fn(i32)) {
    let mut signalled = false;
    loop {
        let (name, code) = tokio::select! {
            Some(()) = term.recv() => ("SIGTERM", EXIT_TERM),
            Some(()) = int.recv() => ("SIGINT", EXIT_INT),
            else => return,
        };
        if signalled {
            tracing::warn!("{name} again: exiting immediately");
            exit(code);
        } else {
            tracing::info!("{name}: shutting down");
            signalled = true;
            shutdown.request();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use rustix::process::{Signal as Raw, getpid, kill_process};

    #[tokio::test]
    async fn clones_and_children_see_a_request_and_the_parent_does_not() {
        let parent = Shutdown::manual();
        let (child, clone) = (parent.child(), parent.clone());
        child.request();
        child.requested().await;
        assert!(!parent.is_requested());
        clone.request();
        parent.requested().await;
    }

    /// The runtime of this test is blocked from its first line to its last.
    #[tokio::test]
    async fn the_second_signal_exits_even_while_the_runtime_is_blocked() {
        const LONG: Duration = Duration::from_secs(60);
        let shutdown = Shutdown::manual();
        let ((asked, asks), (sent, codes)) = (mpsc::channel(), mpsc::channel());
        // Stand-ins: SIGTERM would reach the other tests of this process.
        let signals = [SignalKind::user_defined1(), SignalKind::user_defined2()];
        on_a_thread(signals, shutdown.clone(), move |code| sent.send(code).unwrap()).unwrap();
        let requested = shutdown.requested();
        std::thread::spawn(move || {
            Builder::new_current_thread().build().unwrap().block_on(requested);
            asked.send(()).unwrap();
        });
        kill_process(getpid(), Raw::USR1).unwrap();
        asks.recv_timeout(LONG).expect("the first signal requests the shutdown");
        assert!(codes.try_recv().is_err(), "the first signal must not exit");
        kill_process(getpid(), Raw::USR2).unwrap();
        assert_eq!(codes.recv_timeout(LONG), Ok(EXIT_INT));
    }
}
