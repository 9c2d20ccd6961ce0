//! The program: its arguments, and the manager with its controllers.

mod controller;

use std::io::{IsTerminal, stderr};
use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use controller_machinery::manager::{Lease, Manager, Serve};
use tracing_subscriber::EnvFilter;

/// An allocator that is faster than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs a Deployment for each Widget.
#[derive(clap::Parser)]
struct Args {
    /// The kubeconfig; else KUBECONFIG, ~/.kube/config, or the pod's ServiceAccount.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
    /// Watch this namespace only (can be repeated).
    #[arg(long = "namespace")]
    namespaces: Vec<String>,
    /// The address of /healthz and /readyz.
    #[arg(long, default_value = "[::]:8081")]
    health_probe_bind_address: SocketAddr,
    /// The address of /metrics, served over TLS to clients that the API server authorizes.
    #[arg(long, default_value = "[::]:8443")]
    metrics_bind_address: SocketAddr,
    /// Reconcile only while this process holds the Lease "widget-operator".
    #[arg(long)]
    leader_elect: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Print the CustomResourceDefinition.
    Crd,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Args = clap::Parser::parse();
    if let Some(Command::Crd) = args.command {
        print!("{}", controller::definition());
        return ExitCode::SUCCESS;
    }
    let levels = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let colors = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt().with_env_filter(levels);
    lines.with_writer(stderr).with_ansi(colors).init();
    let serve = Serve::secure()
        .health(args.health_probe_bind_address)
        .metrics(args.metrics_bind_address);
    let mut manager = Manager::new("widget-operator")
        .kubeconfig(args.kubeconfig)
        .namespaces(args.namespaces)
        .serve(serve);
    if args.leader_elect {
        manager = manager.leader_election(Lease::named("widget-operator"));
    }
    controller::add_to(manager).run().await
}
