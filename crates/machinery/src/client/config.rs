//! The address of the API server and its credentials.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::{Error, proxy};

/// The address of an API server and its credentials, from [`config`] or a `kube::Config`.
#[derive(Clone)]
pub struct Config(pub(super) kube::Config);

/// Omits credentials, which a plugin's arguments and a proxy's URL can contain, too.
impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("host", &self.host().unwrap_or_default())
            .finish_non_exhaustive()
    }
}

/// Finds the API server: the kubeconfig at `kubeconfig`, else KUBECONFIG, else `~/.kube/config`, else the cluster of
/// the pod. `context` selects a context of the kubeconfig. The proxy of the kubeconfig takes precedence over the
/// environment's (`HTTPS_PROXY`, `NO_PROXY`).
///
/// # Errors
/// [`Error::Config`], which lists the searched places and the remedy.
pub async fn config(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Config, Error> {
    let named = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let named = std::env::split_paths(&named).filter(|path| !path.as_os_str().is_empty());
    let named: Vec<PathBuf> = named.collect();
    let home = std::env::home_dir().map(|home| home.join(".kube/config"));
    let home = home.filter(|path| path.is_file());
    let file = match kubeconfig {
        Some(path) => {
            Some((format!("the kubeconfig {}", path.display()), Kubeconfig::read_from(path)))
        }
        None if named.is_empty() => {
            home.map(|home| ("~/.kube/config".to_owned(), Kubeconfig::read_from(home)))
        }
        None => Some(("the kubeconfig that KUBECONFIG names".to_owned(), Ok(merged(&named)?))),
    };
    let mut config = match (file, context) {
        (Some((which, file)), _) => selected(&which, file, context).await?,
        (None, Some(context)) => {
            return Err(Error::Config(format!(
                "there is no kubeconfig in which to look for the context {context}: set KUBECONFIG or --kubeconfig"
            )));
        }
        (None, None) => kube::Config::incluster().map_err(|why| {
            Error::Config(format!(
                "cannot find a cluster: no --kubeconfig, KUBECONFIG or ~/.kube/config, and not running in a pod \
                 with a ServiceAccount ({why})"
            ))
        })?,
    };
    if config.proxy_url.is_none() {
        config.proxy_url =
            proxy::of_environment(&config.cluster_url, |name| std::env::var(name).ok())?;
    }
    Ok(Config(config))
}

impl Config {
    /// Returns the host and port of the API server's URL, without a user.
    pub(super) fn host(&self) -> Option<&str> {
        self.0.cluster_url.authority()?.as_str().rsplit('@').next()
    }

    /// Returns the namespace of the context, or of the pod; `default` if there is none.
    pub fn namespace(&self) -> &str {
        &self.0.default_namespace
    }
}

impl From<kube::Config> for Config {
    fn from(config: kube::Config) -> Config {
        Config(config)
    }
}

/// Merges the files of KUBECONFIG. As in kubectl, a missing file counts as empty.
fn merged(paths: &[PathBuf]) -> Result<Kubeconfig, Error> {
    let there: Vec<&PathBuf> = paths.iter().filter(|path| path.exists()).collect();
    if there.is_empty() {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let paths = paths.join(", ");
        return Err(Error::Config(format!("none of the files in KUBECONFIG exist: {paths}")));
    }
    there.into_iter().try_fold(Kubeconfig::default(), |merged, path| {
        let next = Kubeconfig::read_from(path).and_then(|mut next| {
            // As in client-go, an empty context counts as absent.
            next.current_context.take_if(|context| context.is_empty());
            merged.merge(next)
        });
        next.map_err(|why| unusable(&format!("the kubeconfig {}", path.display()), why))
    })
}

/// Returns the configuration in a kubeconfig; `proxy_url` is set only if the kubeconfig itself
/// names a proxy.
async fn selected(
    which: &str,
    file: Result<Kubeconfig, KubeconfigError>,
    context: Option<&str>,
) -> Result<kube::Config, Error> {
    /// Placeholder for no proxy: otherwise kube would use HTTPS_PROXY and ignore NO_PROXY.
    const NONE: &str = "http://none.invalid/";
    let mut file = file.map_err(|why| unusable(which, why))?;
    for cluster in file.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        // kube has prepended the folder of the kubeconfig to the name of the file.
        cluster.certificate_authority.take_if(|file| file.is_empty() || file.ends_with('/'));
        let data = &mut cluster.certificate_authority_data;
        for text in [data, &mut cluster.tls_server_name, &mut cluster.proxy_url] {
            text.take_if(|text| text.is_empty());
        }
        cluster.proxy_url.get_or_insert_with(|| NONE.to_owned());
    }
    for auth in file.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        for path in [&mut auth.token_file, &mut auth.client_certificate, &mut auth.client_key] {
            path.take_if(|path| path.is_empty() || path.ends_with('/'));
        }
    }
    for context in file.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
        context.namespace.take_if(|namespace| namespace.is_empty());
    }
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let authority = authority_file(&file, context);
    let config = kube::Config::from_custom_kubeconfig(file, &options).await;
    let mut config = config.map_err(|why| unusable(which, why))?;
    config.root_cert_file = authority;
    config.proxy_url = config.proxy_url.filter(|proxy| proxy != NONE);
    // A credential plugin with `provideClusterInfo` receives the cluster.
    let shown = config.auth_info.exec.as_mut().and_then(|exec| exec.cluster.as_mut());
    if let Some(cluster) = shown {
        cluster.proxy_url.take_if(|proxy| proxy == NONE);
    }
    Ok(config)
}

/// Returns the CA file of the context's cluster. kube rereads the file when it changes.
fn authority_file(file: &Kubeconfig, context: Option<&str>) -> Option<PathBuf> {
    let context = context.or(file.current_context.as_deref())?;
    let context = file.contexts.iter().find(|named| named.name == context)?.context.as_ref()?;
    let cluster = file.clusters.iter().find(|named| named.name == context.cluster)?;
    let cluster = cluster.cluster.as_ref()?;
    let has_data = cluster.certificate_authority_data.is_some();
    cluster.certificate_authority.as_ref().filter(|_| !has_data).map(PathBuf::from)
}

#[allow(clippy::needless_pass_by_value)] // It is passed to `map_err`.
fn unusable(which: &str, why: KubeconfigError) -> Error {
    let why = match why {
        // The complete error quotes the lines around the fault, which can contain a token.
        KubeconfigError::Parse(error) => {
            format!("line {} is not understood", error.location().map_or(0, |at| at.line()))
        }
        other => other.to_string(),
    };
    Error::Config(format!("{which} cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_for_a_missing_kubeconfig_names_it() {
        let error = config(Some(Path::new("/no/such/file")), None).await.unwrap_err().to_string();
        assert!(error.contains("/no/such/file"), "{error}");
    }

    #[tokio::test]
    async fn a_kubeconfig_that_is_not_understood_is_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nkind: Config\nusers:\n- name: a\n  user:\n    token: hunter2\n    token: hunter3\n";
        std::fs::write(&path, text).unwrap();
        let error = config(Some(&path), None).await.unwrap_err().to_string();
        assert!(error.contains("line ") && !error.contains("hunter"), "{error}");
    }

    #[tokio::test]
    async fn empty_names_of_credential_files_count_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
            clusters: [{name: a, cluster: {server: 'http://me:secret@a:1'}}]\n\
            contexts: [{name: a, context: {cluster: a, user: u}}]\n\
            users: [{name: u, user: {token: x, tokenFile: '', client-certificate: '', client-key: ''}}]\n";
        std::fs::write(&path, text).unwrap();
        let config = config(Some(&path), None).await.unwrap();
        let auth = &config.0.auth_info;
        assert_eq!([&auth.token_file, &auth.client_certificate, &auth.client_key], [&None; 3]);
        assert_eq!(config.host(), Some("a:1"));
    }

    #[tokio::test]
    async fn the_proxy_is_that_of_the_selected_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: []\n\
            clusters: [{name: a, cluster: {server: 'http://a:1', proxy-url: 'http://p:1'}}, \
            {name: b, cluster: {server: 'http://b:2', proxy-url: ''}}]\n\
            contexts: [{name: a, context: {cluster: a}}, {name: b, context: {cluster: b}}]\n";
        std::fs::write(&path, text).unwrap();
        let proxy = async |context| config(Some(&path), Some(context)).await.unwrap().0.proxy_url;
        assert_eq!(proxy("a").await.map(|proxy| proxy.to_string()).as_deref(), Some("http://p:1/"));
        assert_eq!(proxy("b").await, None);
    }

    #[tokio::test]
    async fn a_plugin_receives_only_the_proxy_of_the_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
            users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: login, \
            interactiveMode: Never, provideClusterInfo: true}}}]\n\
            clusters: [{name: a, cluster: {server: 'http://a:1'}}]\n\
            contexts: [{name: a, context: {cluster: a, user: u}}]\n";
        std::fs::write(&path, text).unwrap();
        let cluster = config(Some(&path), None).await.unwrap().0.auth_info.exec.unwrap().cluster;
        let cluster = cluster.expect("it is to be shown");
        assert_eq!((cluster.server.as_deref(), cluster.proxy_url), (Some("http://a:1"), None));
    }

    #[tokio::test]
    async fn empty_texts_count_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: ''\nusers: [{name: u, user: {}}]\n\
            clusters: [{name: a, cluster: {server: 'https://a:1', certificate-authority: '', \
            certificate-authority-data: '', tls-server-name: '', proxy-url: ''}}]\n\
            contexts: [{name: a, context: {cluster: a, user: u, namespace: ''}}]\n";
        std::fs::write(&path, text).unwrap();
        let found = config(Some(&path), Some("a")).await.unwrap();
        assert_eq!(found.namespace(), "default");
        let kube::Config { root_cert, root_cert_file, tls_server_name, proxy_url, .. } = found.0;
        assert_eq!(
            (root_cert, root_cert_file, tls_server_name, proxy_url),
            (None, None, None, None)
        );
        // The next file's context counts.
        let next = dir.path().join("next");
        std::fs::write(&next, "apiVersion: v1\nkind: Config\ncurrent-context: b\n").unwrap();
        assert_eq!(merged(&[path, next]).unwrap().current_context.as_deref(), Some("b"));
    }

    #[tokio::test]
    async fn a_ca_file_is_reread() {
        let dir = tempfile::tempdir().unwrap();
        let (path, authority) = (dir.path().join("config"), dir.path().join("ca.crt"));
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: u, user: {}}]\n\
            clusters: [{name: a, cluster: {server: 'https://a:1', certificate-authority: ca.crt}}]\n\
            contexts: [{name: a, context: {cluster: a, user: u}}]\n";
        std::fs::write(&path, text).unwrap();
        std::fs::write(&authority, "").unwrap();
        let found = config(Some(&path), None).await.unwrap();
        assert_eq!(found.0.root_cert_file, Some(authority));
    }

    #[test]
    fn no_credential_is_printed() {
        let mut config = kube::Config::new("https://a:1".parse().unwrap());
        config.auth_info.token = Some("secret".to_owned().into());
        config.proxy_url = Some("http://user:secret@proxy".parse().unwrap());
        assert_eq!(format!("{:?}", Config(config)), "Config { host: \"a:1\", .. }");
    }

    #[test]
    fn a_missing_file_among_several_counts_as_empty() {
        let dir = tempfile::tempdir().unwrap();
        let (there, missing) = (dir.path().join("config"), dir.path().join("team"));
        std::fs::write(&there, "apiVersion: v1\nkind: Config\ncurrent-context: a\n").unwrap();
        let both = merged(&[missing.clone(), there.clone()]).unwrap();
        assert_eq!(both.current_context.as_deref(), Some("a"));
        let error = merged(std::slice::from_ref(&missing)).unwrap_err().to_string();
        assert!(error.contains("team"), "{error}");
        std::fs::write(&missing, "a: [").unwrap();
        let error = merged(&[there, missing]).unwrap_err().to_string();
        assert!(error.contains("team") && error.contains("cannot be used"), "{error}");
    }

    #[tokio::test]
    async fn the_requested_context_is_selected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "apiVersion: v1\nkind: Config\ncurrent-context: a\nusers: [{name: u, user: {}}]\n\
            clusters: [{name: a, cluster: {server: 'http://a:1'}}, {name: b, cluster: {server: 'http://b:2'}}]\n\
            contexts: [{name: a, context: {cluster: a, user: u}}, {name: b, context: {cluster: b, user: u}}]\n";
        std::fs::write(&path, text).unwrap();
        let config = config(Some(&path), Some("b")).await.unwrap();
        assert_eq!(config.0.cluster_url.to_string(), "http://b:2/");
        let error = super::config(Some(&path), Some("c")).await.unwrap_err().to_string();
        assert!(error.contains('c'), "{error}");
    }
}
