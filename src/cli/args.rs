//! The command line. Every flag of `run` can also be set through an environment variable. The other commands read
//! variables in the operator's pod only, where these are the operator's settings: elsewhere, what a person reads must not
//! depend on an inherited variable.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Args, Parser, Subcommand, ValueEnum};

use super::IDENTITY;
use super::check::CheckArgs;
use super::plan::PlanArgs;

use super::status::StatusArgs;
use crate::client::{self, Client, Error, Options};
use crate::manager::Serve;
use crate::memcached::Limit;
use crate::workload::labels::inheritable;

/// Runs Memcached, GenericDaemon and App workloads from custom resources.
#[derive(Debug, Parser)]
#[command(name = "workload-operator", version = version())]
pub struct Cli {
    /// The command. Defaults to `run`.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of `run`.
    #[command(flatten)]
    pub run: RunArgs,
}

/// Commands of the binary.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the operator (the default).
    Run(Box<RunArgs>),
    /// Print the CustomResourceDefinitions for `kubectl apply --server-side -f -`.
    Crds {
        /// Maximum size of a Memcached.
        #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=8))]
        memcached_max_size: u8,
    },
    /// Check whether the cluster is compatible with this binary. Read-only.
    Check(Box<CheckArgs>),
    /// Show what this version would change in the cluster. All writes are dry runs. Flags default to the settings of the
    /// installed operator.
    Plan(Box<PlanArgs>),
    /// Explain why a custom resource is not ready. Read-only.
    Status(Box<StatusArgs>),
    /// Print all installation manifests for `kubectl apply --server-side -f -`.
    Manifests(Box<ManifestsArgs>),
    /// Print shell completions: source <(workload-operator completions bash)
    Completions {
        /// Shell.
        shell: clap_complete::Shell,
    },
}

/// Address of the API server, and the account.
#[derive(Debug, Clone, Args)]
pub struct ConnectionArgs {
    /// Path to the kubeconfig file. Defaults to the KUBECONFIG environment variable, ~/.kube/config, or the pod's
    /// ServiceAccount.
    #[arg(long, help_heading = CONNECTION, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig file. Defaults to its current context.
    #[arg(long, help_heading = CONNECTION, global = true, env = "KUBE_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

/// The custom resources that are reconciled, and how.
#[derive(Debug, Clone, Args)]
pub struct WorkloadArgs {
    /// Namespaces to watch (comma-separated or repeated). In each of them, a Role is sufficient. Defaults to all
    /// namespaces.
    #[arg(
        help_heading = WORKLOADS,
        short = 'n',
        long = "watch-namespace",
        visible_alias = "namespace",
        env = "WATCH_NAMESPACE",
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = namespace
    )]
    pub namespaces: Vec<String>,

    /// Controllers to run (comma-separated or repeated). Defaults to all controllers.
    #[arg(long, help_heading = WORKLOADS, env = "CONTROLLERS", value_name = "KIND", value_delimiter = ',')]
    pub controllers: Vec<ControllerName>,

    /// Default image of Memcacheds that do not set `image`. Without it, the operator creates no Deployment for them and
    /// keeps the image of existing ones. Both are reported as `ImageMissing`.
    #[arg(long, help_heading = WORKLOADS, env = "MEMCACHED_IMAGE", value_name = "IMAGE", value_parser = image)]
    pub memcached_image: Option<String>,

    /// Default image of exporters that do not set `image`. Without it, Memcacheds with such an exporter are reported as
    /// `ImageMissing`, too.
    #[arg(long, help_heading = WORKLOADS, env = "MEMCACHED_EXPORTER_IMAGE", value_name = "IMAGE", value_parser = image)]
    pub memcached_exporter_image: Option<String>,

    /// Allows `podTemplate` and `serviceTemplate`, which can make pods privileged and use any ServiceAccount. Use it only
    /// together with the policies of artifacts/policy, which decide who can set them.
    #[arg(long, help_heading = WORKLOADS, env = "ALLOW_TEMPLATES", num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub allow_templates: bool,

    /// Labels that managed resources and pods inherit from their custom resource (comma-separated or repeated): keys
    /// such as team, or prefixes such as example.com/*. A change of such a label restarts the pods. Defaults to none.
    #[arg(long, help_heading = WORKLOADS, env = "INHERITED_LABELS", value_name = "KEY", value_delimiter = ',', value_parser = inheritable)]
    pub inherited_labels: Vec<String>,
}

/// The variable with the namespace of the operator's pod, from its manifests.
pub(super) const POD_NAMESPACE: &str = "POD_NAMESPACE";

const CONNECTION: &str = "Connection";
const WORKLOADS: &str = "Workloads";
const ELECTION: &str = "Leader election";
const SERVERS: &str = "Servers";

/// Settings of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// Which API server, as whom.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Kinds and namespaces that are reconciled, and settings of the kinds.
    #[command(flatten)]
    pub workloads: WorkloadArgs,

    /// Maximum number of Memcacheds that change to a new default image at the same time: a number, or a percentage of
    /// those that use a default image. The others keep the previous image until it is their turn. Defaults to 5%, but at least one.
    #[arg(long, help_heading = WORKLOADS, env = "MAX_IMAGE_ROLLOUTS", value_name = "NUMBER")]
    pub max_image_rollouts: Option<Limit>,

    /// Number of concurrent reconciliations of each kind.
    #[arg(long, help_heading = "Process", env = "WORKERS", value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: u16,

    /// Enable leader election. Only the replica that holds the Lease writes.
    #[arg(long, help_heading = ELECTION, env = "LEADER_ELECT", num_args = 0..=1, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub leader_elect: bool,

    /// Namespace of the Lease. Defaults to the namespace of the pod, else to the first --watch-namespace, else to
    /// workload-operator-system.
    #[arg(long, help_heading = ELECTION, env = "LEADER_ELECT_NAMESPACE", value_name = "NAME")]
    pub leader_elect_namespace: Option<String>,

    /// Name of the Lease. Installations in one namespace that serve different namespaces each need their own.
    #[arg(
        long,
        help_heading = ELECTION,
        env = "LEADER_ELECT_RESOURCE_NAME",
        value_name = "NAME",
        default_value = "workload-operator"
    )]
    pub leader_elect_resource_name: String,

    /// Time after which another replica can take over a Lease that is not renewed.
    #[arg(long, help_heading = ELECTION, env = "LEADER_ELECT_LEASE_DURATION", value_name = "TIME", default_value = "15s", value_parser = duration)]
    pub leader_elect_lease_duration: Duration,

    /// Time that the leader tries to renew the Lease before it stops writing. Must be shorter than the Lease duration.
    /// To tolerate a slow clock, the leader stops at the latest 2s before half of the Lease duration (below 12s, after a
    /// third of it). By default, that is after 5.5s.
    #[arg(long, help_heading = ELECTION, env = "LEADER_ELECT_RENEW_DEADLINE", value_name = "TIME", default_value = "10s", hide_default_value = true, value_parser = duration)]
    pub leader_elect_renew_deadline: Duration,

    /// Pause between two attempts to acquire or renew the Lease.
    #[arg(long, help_heading = ELECTION, env = "LEADER_ELECT_RETRY_PERIOD", value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub leader_elect_retry_period: Duration,

    /// Address of /metrics: IP:PORT, :PORT for all addresses (IPv4 and IPv6), or 0 to disable it. Port 0 selects a free
    /// port.
    #[arg(
        long,
        help_heading = SERVERS,
        env = "METRICS_BIND_ADDRESS",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080"
    )]
    pub metrics_bind_address: BindAddress,

    /// Serve /metrics over TLS, only to clients with permission to get the non-resource URL /metrics. With `false`,
    /// serve it over plain HTTP to all clients. Defaults to true, or to false on a loopback address
    /// without a certificate.
    #[arg(long, help_heading = SERVERS, env = "METRICS_SECURE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub metrics_secure: Option<bool>,

    /// Certificate of /metrics (PEM). The operator reloads the file when it changes. Defaults to a self-signed
    /// certificate.
    #[arg(long, help_heading = SERVERS, env = "METRICS_CERTIFICATE", value_name = "FILE", requires = "metrics_key")]
    pub metrics_certificate: Option<PathBuf>,

    /// Private key of the certificate (PEM).
    #[arg(long, help_heading = SERVERS, env = "METRICS_KEY", value_name = "FILE", requires = "metrics_certificate")]
    pub metrics_key: Option<PathBuf>,

    /// Address of /healthz and /readyz (plain HTTP): IP:PORT, :PORT for all addresses (IPv4 and IPv6), or 0 to disable
    /// them. Port 0 selects a free port. Must differ from the port of /metrics.
    #[arg(
        long,
        help_heading = SERVERS,
        env = "HEALTH_PROBE_BIND_ADDRESS",
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8081"
    )]
    pub health_probe_bind_address: BindAddress,

    /// Timeout of a request to the API server. The operator retries requests that time out. An overloaded API server
    /// queues requests for up to 15 s. Exceptions: a list has 65 s for its first byte, and a write has
    /// --write-deadline.
    #[arg(long, help_heading = "Process", env = "API_DEADLINE", value_name = "TIME", default_value = "20s", value_parser = duration)]
    pub api_deadline: Duration,

    /// Timeout of a write to the API server. Each admission webhook can take 30 s, and the API server gives up after
    /// 60 s.
    #[arg(long, help_heading = "Process", env = "WRITE_DEADLINE", value_name = "TIME", default_value = "65s", value_parser = duration)]
    pub write_deadline: Duration,

    /// Time that running reconciliations have to finish after SIGTERM. Keep it 15 s below the pod's
    /// terminationGracePeriodSeconds: afterwards, the operator sends Events and releases the Lease.
    #[arg(long, help_heading = "Process", env = "SHUTDOWN_GRACE", value_name = "TIME", default_value = "25s", value_parser = duration)]
    pub shutdown_grace: Duration,

    /// Log level: error, warn, info, debug, trace, or a filter in the syntax of RUST_LOG.
    #[arg(
        long,
        help_heading = "Process",
        env = "RUST_LOG",
        value_name = "LEVEL",
        default_value = "info"
    )]
    pub log_level: String,

    /// Log format.
    #[arg(
        long,
        help_heading = "Process",
        env = "LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "auto"
    )]
    pub log_format: LogFormat,
}

impl WorkloadArgs {
    /// Returns the controllers to run.
    pub(crate) fn controllers(&self) -> &[ControllerName] {
        if self.controllers.is_empty() {
            ControllerName::value_variants()
        } else {
            &self.controllers
        }
    }
}

impl RunArgs {
    /// Returns whether /metrics is served over TLS to authorized clients only.
    fn serves_metrics_securely(&self) -> bool {
        let is_local =
            self.metrics_bind_address.0.is_some_and(|address| address.ip().is_loopback());
        self.metrics_secure.unwrap_or(!is_local || self.metrics_certificate.is_some())
    }

    /// Returns the servers of health and metrics.
    ///
    /// # Errors
    /// If the flags contradict each other.
    pub(crate) fn serve(&self) -> Result<Serve, super::Error> {
        self.has_two_ports()?;
        if self.metrics_secure == Some(false) && self.metrics_certificate.is_some() {
            return Err(super::Error::Metrics(
                "--metrics-secure=false serves plain HTTP and uses no --metrics-certificate: leave out one of them",
            ));
        }
        let is_secure = self.serves_metrics_securely();
        let serve = if is_secure { Serve::secure() } else { Serve::open() };
        let serve = serve.health(self.health_probe_bind_address.0);
        let serve = serve.metrics(self.metrics_bind_address.0);
        Ok(match self.metrics_certificate.clone().zip(self.metrics_key.clone()) {
            Some((certificate, key)) => serve.certificate(certificate, key),
            None => serve,
        })
    }

    /// Refuses one port for both health checks and metrics: scrapes could crowd out probes.
    fn has_two_ports(&self) -> Result<(), super::Error> {
        let port = |address: BindAddress| address.0.map(|at| at.port()).filter(|port| *port != 0);
        let (metrics, health) = (self.metrics_bind_address, self.health_probe_bind_address);
        if port(metrics).is_some_and(|both| port(health) == Some(both)) {
            return Err(super::Error::Metrics(
                "health checks and metrics need a port each: choose another \
                 --health-probe-bind-address or --metrics-bind-address, or 0 for none",
            ));
        }
        Ok(())
    }
}

/// A controller, by its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum ControllerName {
    /// Memcached.
    Memcached,
    /// GenericDaemon.
    GenericDaemon,
    /// App.
    App,
}

/// Form of a command's result, other than text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Output {
    /// Text with more details, where there are more.
    Wide,
    /// One JSON object.
    Json,
    /// One YAML document.
    Yaml,
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    Auto,
    /// Human-readable text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Address of a server, if it is switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindAddress(pub Option<std::net::SocketAddr>);

impl ConnectionArgs {
    /// The configuration that the flags select.
    pub(crate) async fn config(&self) -> Result<client::Config, Error> {
        client::config(self.kubeconfig.as_deref(), self.context.as_deref()).await
    }

    /// Returns a client for a single interactive command.
    pub(crate) async fn client(&self) -> Result<Client, Error> {
        Ok(self.client_and_namespace().await?.0)
    }

    /// The same, and the namespace of the context.
    pub(crate) async fn client_and_namespace(&self) -> Result<(Client, String), Error> {
        let config = self.config().await?;
        let namespace = config.namespace().to_owned();
        let client = Client::new(config, Options::new(IDENTITY)).await?;
        Ok((client, namespace))
    }
}

impl std::str::FromStr for BindAddress {
    type Err = String;

    /// Also accepts controller-runtime's forms: `0` is off, and `:8080` is every address of both
    /// families, since a cluster may have either.
    fn from_str(text: &str) -> Result<BindAddress, String> {
        if text == "0" {
            return Ok(BindAddress(None));
        }
        let full = if text.starts_with(':') { format!("[::]{text}") } else { text.to_owned() };
        full.parse().map(|address| BindAddress(Some(address))).map_err(|_| {
            format!("'{text}' must be IP:PORT such as 127.0.0.1:8080, :PORT, or 0 to switch it off")
        })
    }
}

/// Returns the version, with the commit that the binary was built from if the build set it.
fn version() -> &'static str {
    let revision = option_env!("REVISION").map(|revision| format!(" ({revision})"));
    // Once per process: clap borrows it forever.
    format!("{}{}", env!("CARGO_PKG_VERSION"), revision.unwrap_or_default()).leak()
}

/// Returns `command` with the habits of Kubernetes' programs: the last of a flag that is given twice counts, an empty
/// environment variable counts as not set (manifests often define variables with an empty value), and the help of the
/// program lists its commands, not the flags of `run`.
pub(crate) fn as_kubernetes_programs(command: clap::Command) -> clap::Command {
    let in_pod = std::env::var_os(POD_NAMESPACE).is_some_and(|name| !name.is_empty());
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let habits = |is_of_run: bool| {
        move |argument: clap::Arg| {
            // The flags of the connection belong to every command.
            let counts = in_pod || is_of_run || argument.is_global_set();
            match argument.get_env() {
                Some(name) if !counts || is_empty(name) => argument.env(Resettable::Reset),
                _ => argument,
            }
        }
    };
    command
        .args_override_self(true)
        .mut_args(|argument| {
            let is_of_run = !argument.is_global_set();
            habits(true)(argument).hide(is_of_run)
        })
        .mut_subcommands(|command| {
            let is_run = command.get_name() == "run";
            command.args_override_self(true).mut_args(habits(is_run))
        })
}

/// Removes empty names: `--namespace=` means all namespaces.
pub(crate) fn all_if_empty(namespaces: &mut Vec<String>) {
    namespaces.retain(|name| !name.is_empty());
}

/// The name of an image, or nothing at all.
fn image(text: &str) -> Result<String, String> {
    if text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "'{text}' must be the name of an image without white space, for example 'memcached:1.6'"
    ))
}

/// The name of a namespace (a DNS label), without blanks around it, or nothing at all.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let name = text.trim();
    let is_of_a_label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let is_label = name.len() <= 63 && name.chars().all(is_of_a_label);
    let is_blank = name.is_empty() && !text.is_empty();
    if is_blank || !is_label || name.starts_with('-') || name.ends_with('-') {
        return Err(format!(
            "'{name}' is not a valid namespace: use at most 63 lower-case letters, digits and '-', and start and end \
             with a letter or digit"
        ));
    }
    Ok(name.to_owned())
}

/// The name of a namespace.
fn one_namespace(text: &str) -> Result<String, String> {
    let name = namespace(text)?;
    if name.is_empty() { Err("a namespace must have a name".to_owned()) } else { Ok(name) }
}

/// A positive time as Go and Kubernetes write durations: `500ms`, `15s`, `1m30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<jiff::SignedDuration>().ok().map(Duration::try_from);
    match parsed {
        Some(Ok(time)) if !time.is_zero() => Ok(time),
        _ => Err(format!("'{text}' must be a time such as 500ms, 15s or 1m30s")),
    }
}

/// Settings of `manifests`.
#[derive(Debug, Clone, Args)]
pub struct ManifestsArgs {
    /// Image of the operator. Without it, the manifests name workload-operator:VERSION, which no registry has.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,

    /// Namespace of the operator.
    #[arg(short, long, value_name = "NAME", default_value = super::NAMESPACE, value_parser = one_namespace)]
    pub namespace: String,

    /// Number of replicas of the operator, one of which is the leader.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub replicas: u8,

    /// Image of memcached.
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub memcached_image: Option<String>,

    /// Image of memcached's exporter.
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    pub memcached_exporter_image: Option<String>,

    /// Leave out the CustomResourceDefinitions, for example to uninstall one of several installations: with them, the
    /// custom resources of all installations are deleted.
    #[arg(long)]
    pub without_crds: bool,

    /// Maximum size of a Memcached.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(3..=8))]
    pub memcached_max_size: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> RunArgs {
        let all = ["workload-operator"].iter().chain(arguments);
        Cli::try_parse_from(all).unwrap().run
    }

    fn refused(arguments: &[&str]) -> String {
        let all = ["workload-operator"].iter().chain(arguments);
        Cli::try_parse_from(all).unwrap_err().to_string()
    }

    #[test]
    fn no_flag_is_needed() {
        let args = parsed(&[]);
        assert!(
            args.workloads.namespaces.is_empty()
                && args.connection.kubeconfig.is_none()
                && !args.leader_elect
        );
        assert_eq!(args.workloads.controllers().len(), 3);
    }

    #[test]
    fn a_namespace_can_be_repeated_or_listed() {
        assert_eq!(
            parsed(&["--namespace", "a", "--namespace=b,c"]).workloads.namespaces,
            ["a", "b", "c"]
        );
        assert_eq!(parsed(&["--namespace=a, b"]).workloads.namespaces, ["a", "b"]);
        for bad in [" ", "A", "a b", "-a", "a-", "a.b", "*"] {
            let refused = namespace(bad).expect_err(bad);
            assert!(refused.contains("is not a valid namespace"), "{refused}");
        }
    }

    #[test]
    fn an_address_is_off_or_a_socket() {
        assert_eq!(
            parsed(&["--metrics-bind-address", "0"]).metrics_bind_address,
            BindAddress(None)
        );
        let all = parsed(&["--metrics-bind-address=:8443"]).metrics_bind_address;
        assert_eq!(all, BindAddress(Some("[::]:8443".parse().unwrap())), "of both families");
        assert!(refused(&["--metrics-bind-address=here"]).contains("must be IP:PORT"));
    }

    #[test]
    fn metrics_are_secure_except_on_loopback_or_if_disabled() {
        for (arguments, secure) in [
            (&["--metrics-bind-address=:8443"][..], true),
            (&["--metrics-bind-address=10.0.0.1:8443"], true),
            (&["--metrics-bind-address=:8080", "--metrics-secure=false"], false),
            (&[], false),
            (&["--metrics-bind-address=[::1]:8080"], false),
            (&["--metrics-secure"], true),
            (&["--metrics-certificate=a", "--metrics-key=b"], true),
        ] {
            assert_eq!(parsed(arguments).serves_metrics_securely(), secure, "{arguments:?}");
        }
    }

    #[test]
    fn health_and_metrics_have_a_port_each() {
        let check = |metrics: &str, health: &str| {
            let metrics = format!("--metrics-bind-address={metrics}");
            let health = format!("--health-probe-bind-address={health}");
            parsed(&[metrics.as_str(), health.as_str()]).has_two_ports()
        };
        for (metrics, health) in [(":8080", ":8080"), (":8080", "127.0.0.1:8080")] {
            let refused = check(metrics, health).unwrap_err().to_string();
            assert!(refused.contains("choose another --health-probe-bind-address"), "{refused}");
        }
        for (metrics, health) in [(":8443", ":8081"), (":0", ":0"), ("0", "0"), ("0", ":8080")] {
            assert!(check(metrics, health).is_ok(), "{metrics} {health}");
        }
    }

    #[test]
    fn each_form_of_the_log_is_chosen_by_its_name() {
        for (name, format) in
            [("auto", LogFormat::Auto), ("text", LogFormat::Text), ("json", LogFormat::Json)]
        {
            assert_eq!(parsed(&["--log-format", name]).log_format, format);
        }
    }

    #[test]
    fn rollouts_of_images_are_a_number_or_a_percentage() {
        for (text, limit) in [
            ("1", Limit::Number(1)),
            ("300", Limit::Number(300)),
            ("1%", Limit::Percentage(1)),
            ("100%", Limit::Percentage(100)),
        ] {
            let args = parsed(&["--max-image-rollouts", text]);
            assert_eq!(args.max_image_rollouts, Some(limit), "{text}");
        }
        assert_eq!(parsed(&[]).max_image_rollouts, None);
        for bad in ["0", "0%", "101%", "-1", "+1", "1.5", "5 %", "%", "some", ""] {
            let argument = format!("--max-image-rollouts={bad}");
            let refused = refused(&[&argument]);
            let allowed = "must be a number of 1 or more, or 1% to 100%";
            assert!(refused.contains(allowed), "{bad}: {refused}");
        }
    }

    #[test]
    fn a_time_has_the_format_of_a_go_duration() {
        for (text, seconds) in [("1500ms", 1.5), ("1.5s", 1.5), ("1m30s", 90.0), ("1h", 3600.0)] {
            assert_eq!(duration(text), Ok(Duration::from_secs_f64(seconds)), "{text}");
        }
        for bad in ["15", "s", "0s", "-1s", "1s ago", "99999999999999999999s", ""] {
            let argument = format!("--api-deadline={bad}");
            assert!(refused(&[&argument]).contains("such as 500ms, 15s or 1m30s"), "{bad}");
        }
    }

    /// As with Go's flags: an overlay, or extraArgs of the chart, appends its own.
    #[test]
    fn the_last_value_of_a_repeated_flag_counts() {
        let parse = |all: &[&str]| crate::cli::parse_from(all.iter().copied()).unwrap();
        let twice = ["--leader-elect", "--leader-elect=false", "--workers=2", "--workers", "3"];
        let args = parse(&[&["x"][..], &twice].concat()).run;
        assert_eq!((args.leader_elect, args.workers), (false, 3));
        let namespaces = ["--watch-namespace=a", "--namespace=b"];
        let args = parse(&[&["x"][..], &namespaces].concat()).run.workloads;
        assert_eq!(args.namespaces, ["a", "b"], "a list grows");
        for command in ["run", "check", "plan", "status app a"] {
            let words = command.split(' ').chain(["--context=a", "--context=b"]);
            parse(&["x"].into_iter().chain(words).collect::<Vec<_>>());
        }
        parse(&["x", "manifests", "--image=a", "--image=b"]);
    }

    #[test]
    fn only_connection_flags_can_precede_the_command() {
        let parse = |all: &[&str]| crate::cli::parse_from(all.iter().copied());
        let kubeconfig = |cli: Cli| match cli.command {
            Some(Command::Check(args)) => args.connection.kubeconfig,
            _ => None,
        };
        let before = parse(&["x", "--kubeconfig=a", "check", "-n", "ops"]).unwrap();
        assert_eq!(kubeconfig(before), Some("a".into()));
        let after = parse(&["x", "check", "--kubeconfig=a"]).unwrap();
        assert_eq!(kubeconfig(after), Some("a".into()));
        assert_eq!(
            parse(&["x", "--kubeconfig=a"]).unwrap().run.connection.kubeconfig,
            Some("a".into())
        );
        let refused = parse(&["x", "--workers=3", "check"]).unwrap_err().to_string();
        assert!(refused.contains("'--workers <N>' must follow the command 'run'"), "{refused}");
    }

    #[test]
    fn variables_set_flags_of_run_and_of_no_other_command() {
        use clap::CommandFactory;
        let mut cli = as_kubernetes_programs(Cli::command());
        cli.build();
        let mut seen = 0;
        for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
            let flags = command.get_arguments().filter(|argument| !argument.is_positional());
            for flag in flags.filter(|flag| !["help", "version"].contains(&flag.get_id().as_str()))
            {
                let (name, id) = (command.get_name(), flag.get_id().as_str());
                let has_one = match id {
                    "context" => true,
                    // KUBECONFIG is a list of files, which the client reads.
                    "kubeconfig" => false,
                    _ => ["workload-operator", "run"].contains(&name),
                };
                assert_eq!(flag.get_env().is_some(), has_one, "{name} {flag}");
                seen += 1;
            }
        }
        assert!(seen > 40, "{seen} flags");
    }

    /// `UPDATE_ARTIFACTS=1` writes the file instead.
    #[test]
    fn the_documentation_has_a_row_for_each_flag() {
        use clap::CommandFactory;
        let mut cli = as_kubernetes_programs(Cli::command());
        cli.build();
        let mut text = String::from(
            "# Flags\n\n\
             In the operator's Deployment, set a flag as an argument of the container or as its environment variable; an argument\n\
             takes precedence. [Install](INSTALL.md#kustomize) shows how, with kustomize. With Helm, use the value `extraArgs`.\n\
             The manifests set `--leader-elect`, `--health-probe-bind-address=:8081`, `--metrics-bind-address=:8443` and\n\
             `--allow-templates`, so the defaults below are not those of an installation.\n\n\
             `-n` names the namespaces that the operator serves in `run`, `check` and `plan`, the namespace of the custom\n\
             resource in `status`, and the operator's own in `manifests`. The flags of `run` under \"Connection\" apply to\n\
             `check`, `plan` and `status` too. `workload-operator help COMMAND` prints the same texts.\n",
        );
        for command in cli.get_subcommands().filter(|command| command.get_name() != "help") {
            let about = command.get_about().expect("each command has one");
            text.push_str(&format!("\n## {}\n\n{about}.\n", command.get_name()));
            let is_run = command.get_name() == "run";
            let mut tables: Vec<(&str, String)> = Vec::new();
            for flag in command.get_arguments().filter(|flag| flag.get_id() != "help") {
                let heading = flag.get_help_heading().unwrap_or_default();
                let heading = if is_run || heading == CONNECTION { heading } else { "" };
                match tables.iter_mut().find(|(of, _)| *of == heading) {
                    Some((_, rows)) => rows.push_str(&row(flag)),
                    None => tables.push((heading, row(flag))),
                }
            }
            for (heading, rows) in tables.iter().filter(|(of, _)| is_run || *of != CONNECTION) {
                let title = if is_run { format!("\n### {heading}\n") } else { String::new() };
                let head = "| flag | variable | default | meaning |\n|---|---|---|---|";
                text.push_str(&format!("{title}\n{head}\n{rows}"));
            }
        }
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/FLAGS.md");
        if std::env::var_os("UPDATE_ARTIFACTS").is_some() {
            std::fs::write(file, &text).unwrap();
        }
        let there = std::fs::read_to_string(file).unwrap_or_default();
        assert!(there == text, "docs/FLAGS.md is out of date: run hack/update-codegen.sh");
    }

    fn row(flag: &clap::Arg) -> String {
        let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
        let joined = |values: Vec<String>| values.join(", ");
        let name = match (flag.get_long(), flag.get_short()) {
            (Some(long), Some(short)) => format!("`--{long}`, `-{short}`"),
            (Some(long), None) => code(&format!("--{long}")),
            _ => code(&flag.get_id().as_str().to_uppercase()),
        };
        let variable = flag.get_env().and_then(OsStr::to_str).unwrap_or_default();
        let values = flag.get_default_values().iter().map(|value| value.to_string_lossy().into());
        let default = joined(values.collect());
        let help = flag.get_long_help().or(flag.get_help()).expect("each flag has one").to_string();
        let help = help.replace('\n', " ").replace('|', "\\|");
        let possible = flag.get_possible_values();
        let named = possible.iter().filter(|value| !["true", "false"].contains(&value.get_name()));
        let named = joined(named.map(|value| code(value.get_name())).collect());
        let values = if named.is_empty() { named } else { format!(" One of {named}.") };
        format!("| {name} | {} | {} | {help}.{values} |\n", code(variable), code(&default))
    }

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
