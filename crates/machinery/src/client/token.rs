//! Credentials in files: Kubernetes replaces a token, and cert-manager a certificate, long before it
//! expires.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::Error;

/// Time before a file is reread. The kubelet replaces a token minutes before it expires. kube uses the wall clock here:
/// if that is set back by an hour, kube keeps one token for an hour.
const FRESH: Duration = Duration::from_secs(50);

/// A value that is reread from files, with its last content. All clones share one state.
#[derive(Clone)]
pub(super) struct ReloadingFile<T>(Arc<Shared<T>>);

struct Shared<T> {
    read: Box<dyn Fn() -> Result<T, String> + Send + Sync>,
    last: Mutex<Last<T>>,
}

struct Last<T> {
    value: T,
    /// `None` after a refusal.
    fresh_until: Option<Instant>,
}

/// A file with a token.
pub(super) type TokenFile = ReloadingFile<HeaderValue>;

/// A client certificate and its key, in PEM.
#[derive(PartialEq, Eq)]
pub(super) struct ClientCertificate {
    pub(super) certificate: Vec<u8>,
    pub(super) key: Vec<u8>,
}

/// The files of a client certificate and its key.
pub(super) type CertificateFiles = ReloadingFile<Arc<ClientCertificate>>;

// === impl ReloadingFile ===

impl<T: Clone + PartialEq> ReloadingFile<T> {
    /// Reads for the first time.
    fn new(read: impl Fn() -> Result<T, String> + Send + Sync + 'static) -> Result<Self, String> {
        let last = Last { value: read()?, fresh_until: Some(Instant::now() + FRESH) };
        Ok(ReloadingFile(Arc::new(Shared { read: Box::new(read), last: Mutex::new(last) })))
    }

    /// Returns the current value, or the last one if the file cannot be read.
    pub(super) fn get(&self) -> T {
        let now = Instant::now();
        let mut last = self.0.last.lock();
        if last.fresh_until.is_none_or(|until| until <= now)
            && let Ok(value) = (self.0.read)()
        {
            last.fresh_until = Some(now + FRESH);
            // An equal token keeps its pointer, which callers compare.
            if last.value != value {
                last.value = value;
            }
        }
        last.value.clone()
    }

    /// Rereads at the next request, after a 401.
    pub(super) fn refused(&self) {
        self.0.last.lock().fresh_until = None;
    }
}

impl TokenFile {
    /// Returns the token file of these credentials, if any. `None` if there is a password, which takes precedence, or
    /// if the file is unreadable and a token is the fallback, as in client-go.
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be read or contains no token.
    pub(super) fn of(auth: &AuthInfo) -> Result<Option<TokenFile>, Error> {
        let has_password = auth.username.is_some() && auth.password.is_some();
        let Some(path) = &auth.token_file else { return Ok(None) };
        if has_password {
            return Ok(None);
        }
        let opened = TokenFile::open(Path::new(path));
        if opened.is_err() && auth.token.as_ref().is_some_and(|t| !t.expose_secret().is_empty()) {
            return Ok(None);
        }
        opened.map(Some)
    }

    fn open(path: &Path) -> Result<TokenFile, Error> {
        let file = path.to_owned();
        ReloadingFile::new(move || token(&file)).map_err(|why| {
            Error::Config(format!("the token file {} cannot be used: {why}", path.display()))
        })
    }
}

impl CertificateFiles {
    /// Returns the files of the client certificate in `auth`, if any.
    ///
    /// # Errors
    /// [`Error::Config`] if they cannot be read.
    pub(super) fn of(auth: &AuthInfo) -> Result<Option<CertificateFiles>, Error> {
        let has_data = auth.client_certificate_data.is_some() || auth.client_key_data.is_some();
        let (Some(certificate), Some(key), false) =
            (auth.client_certificate.clone(), auth.client_key.clone(), has_data)
        else {
            return Ok(None);
        };
        let read = |path: &str| std::fs::read(path).map_err(|error| format!("{path}: {error}"));
        let both = ReloadingFile::new(move || {
            Ok(Arc::new(ClientCertificate { certificate: read(&certificate)?, key: read(&key)? }))
        });
        let unusable = |why| Error::Config(format!("the client certificate cannot be used: {why}"));
        both.map(Some).map_err(unusable)
    }
}

/// Reads a token. The call does not block for long: the file is in memory and about 1 kB.
fn token(path: &Path) -> Result<HeaderValue, String> {
    let token = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let token = token.trim();
    if token.is_empty() {
        return Err("it is empty".to_owned());
    }
    bearer(token)
}

/// Returns the header for a token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header = header.map_err(|error| error.to_string())?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn file(token: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, token).unwrap();
        (folder, path)
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_token_is_used_within_a_minute() {
        let (_folder, path) = file("first\n");
        let token = TokenFile::open(&path).unwrap();
        std::fs::write(&path, "second").unwrap();
        assert_eq!(token.get(), "Bearer first");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.get(), "Bearer second");
        std::fs::write(&path, "third").unwrap();
        assert_eq!(token.get(), "Bearer second", "not read for each request");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_rereads_the_file_for_the_next_request() {
        let (_folder, path) = file("first");
        let token = TokenFile::open(&path).unwrap();
        std::fs::write(&path, "second").unwrap();
        token.refused();
        assert_eq!(token.get(), "Bearer second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_file_keeps_the_last_token_until_it_returns() {
        let (_folder, path) = file("first");
        let token = TokenFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.get(), "Bearer first");
        std::fs::write(&path, "second").unwrap();
        assert_eq!(token.get(), "Bearer second");
    }

    /// A careless writer truncates the file before rewriting it.
    #[tokio::test(start_paused = true)]
    async fn an_empty_file_does_not_replace_a_token() {
        let (_folder, path) = file(" \n");
        let error = TokenFile::open(&path).err().unwrap().to_string();
        assert!(error.ends_with("it is empty"), "{error}");
        let (_folder, path) = file("first");
        let token = TokenFile::open(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.get(), "Bearer first");
    }

    #[tokio::test]
    async fn a_missing_file_is_an_error_without_an_inline_token() {
        let nowhere = AuthInfo { token_file: Some("/no/such/token".into()), ..AuthInfo::default() };
        let error = TokenFile::of(&nowhere).err().unwrap().to_string();
        assert!(error.contains("/no/such/token"), "{error}");
        let both = AuthInfo { token: Some("inline".to_owned().into()), ..nowhere };
        assert!(TokenFile::of(&both).unwrap().is_none());
        assert!(TokenFile::of(&AuthInfo::default()).unwrap().is_none());
    }

    #[test]
    fn no_token_is_printed() {
        let (_folder, path) = file("hunter2\u{7f}");
        let error = TokenFile::open(&path).err().unwrap().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let (_folder, path) = file("hunter2");
        assert!(!format!("{:?}", token(&path).unwrap()).contains("hunter2"));
    }

    #[test]
    fn a_readable_token_file_takes_precedence_over_an_inline_token() {
        let (_folder, path) = file("in the file");
        let auth = |path: &Path| AuthInfo {
            token: Some("given".to_owned().into()),
            token_file: Some(path.display().to_string()),
            ..AuthInfo::default()
        };
        let taken = TokenFile::of(&auth(&path)).unwrap().expect("the file is used");
        assert_eq!(taken.get(), "Bearer in the file");
        assert!(TokenFile::of(&auth(Path::new("/no/such/file"))).unwrap().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replaced_certificate_is_used_within_a_minute() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let write = |certificate: &str| {
            std::fs::write(path("crt"), certificate).unwrap();
            std::fs::write(path("key"), "key").unwrap();
        };
        let auth = AuthInfo {
            client_certificate: Some(path("crt")),
            client_key: Some(path("key")),
            ..AuthInfo::default()
        };
        assert!(CertificateFiles::of(&auth).is_err(), "there are no files");
        write("first");
        let files = CertificateFiles::of(&auth).unwrap().unwrap();
        let first = files.get();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(Arc::ptr_eq(&files.get(), &first), "nothing has changed");
        write("second");
        assert!(Arc::ptr_eq(&files.get(), &first), "not read for each request");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(files.get().certificate, b"second");
        write("third");
        files.refused();
        assert_eq!(files.get().certificate, b"third");
    }
}
