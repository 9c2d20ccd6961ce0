//! Shutdown of the process: requested once, known everywhere.
//!
//! Guarantees
//! - One [`Shutdown`] for the process; every clone sees the same moment.
//! - The first SIGTERM or SIGINT starts an orderly shutdown. A second signal of either kind exits
//!   at once, with the code a shell gives a process killed by it: 143 for SIGTERM, 130 for SIGINT.
//! - Nothing is missed: [`Shutdown::requested`] returns at once if the moment has passed.

use std::future::Future;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// 128 + SIGTERM.
const EXIT_TERM: i32 = 143;
/// 128 + SIGINT.
const EXIT_INT: i32 = 130;

/// Says when to stop. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Listens for SIGTERM and SIGINT, from now on and for as long as the runtime lives.
    ///
    /// # Errors
    /// If the signal handlers cannot be installed.
    pub fn from_signals() -> io::Result<Shutdown> {
        let term = signal(SignalKind::terminate())?;
        let int = signal(SignalKind::interrupt())?;
        let shutdown = Shutdown::manual();
        tokio::spawn(listen(term, int, shutdown.clone(), |code| std::process::exit(code)));
        Ok(shutdown)
    }

    /// A shutdown that only [`Shutdown::request`] triggers.
    pub fn manual() -> Shutdown {
        Shutdown(CancellationToken::new())
    }

    /// A shutdown triggered together with `self`; triggering it alone does not trigger `self`.
    pub fn child(&self) -> Shutdown {
        Shutdown(self.0.child_token())
    }

    /// Starts the shutdown.
    pub fn request(&self) {
        self.0.cancel();
    }

    /// Whether the shutdown has started.
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Returns once the shutdown has started.
    pub fn requested(&self) -> impl Future<Output = ()> + Send + use<> {
        self.0.clone().cancelled_owned()
    }
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
            tracing::warn!("{name} again: exiting at once");
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
    use super::*;
    use rustix::process::{Signal as Raw, getpid, kill_process};

    #[tokio::test]
    async fn a_request_is_seen_by_every_clone_and_child_but_not_by_the_parent() {
        let parent = Shutdown::manual();
        let (child, clone) = (parent.child(), parent.clone());
        child.request();
        child.requested().await;
        assert!(!parent.is_requested());
        clone.request();
        parent.requested().await;
    }

    #[tokio::test]
    async fn the_first_signal_asks_and_the_second_exits() {
        let shutdown = Shutdown::manual();
        let (sent, mut codes) = tokio::sync::mpsc::unbounded_channel();
        let usr1 = signal(SignalKind::user_defined1()).unwrap();
        let usr2 = signal(SignalKind::user_defined2()).unwrap();
        // Stand-ins: SIGTERM would reach the other tests of this process.
        tokio::spawn(listen(usr1, usr2, shutdown.clone(), move |code| sent.send(code).unwrap()));
        kill_process(getpid(), Raw::USR1).unwrap();
        shutdown.requested().await;
        assert!(codes.try_recv().is_err(), "the first signal must not exit");
        kill_process(getpid(), Raw::USR2).unwrap();
        assert_eq!(codes.recv().await, Some(EXIT_INT));
    }
}
