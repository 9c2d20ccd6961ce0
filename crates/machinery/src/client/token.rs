//! A token in a file: Kubernetes replaces it long before it expires.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Error;

/// The file is reread after this long; a kubelet replaces a token minutes before it expires. kube
/// goes by the wall clock here: if that is set back by an hour, it uses one token for an hour.
const FRESH: Duration = Duration::from_secs(50);

/// A file with a token, and its last content. All clones share one state.
#[derive(Clone)]
pub(super) struct TokenFile(Arc<Shared>);

struct Shared {
    path: PathBuf,
    last: Mutex<Last>,
}

struct Last {
    header: HeaderValue,
    /// `None`: it was refused.
    fresh_until: Option<Instant>,
}

// === impl TokenFile ===

impl TokenFile {
    /// The token file that a client with these credentials uses, if any. Of several kinds of
    /// credentials kube takes the first; those checked here come before the file.
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be read or contains no token.
    pub(super) fn of(auth: &AuthInfo) -> Result<Option<TokenFile>, Error> {
        let has_password = auth.username.is_some() && auth.password.is_some();
        if auth.auth_provider.is_some() || has_password || auth.token.is_some() {
            return Ok(None);
        }
        auth.token_file.as_ref().map(|path| TokenFile::open(Path::new(path))).transpose()
    }

    fn open(path: &Path) -> Result<TokenFile, Error> {
        let header = read(path).map_err(|why| {
            Error::Config(format!("the token file {} cannot be used: {why}", path.display()))
        })?;
        let last = Last { header, fresh_until: Some(Instant::now() + FRESH) };
        Ok(TokenFile(Arc::new(Shared { path: path.to_owned(), last: Mutex::new(last) })))
    }

    /// The header for a request that is sent now. If the file cannot be read, its last content is
    /// still the best there is.
    pub(super) fn header(&self) -> HeaderValue {
        let now = Instant::now();
        let mut last = self.0.last.lock();
        if last.fresh_until.is_none_or(|until| until <= now)
            && let Ok(header) = read(&self.0.path)
        {
            *last = Last { header, fresh_until: Some(now + FRESH) };
        }
        last.header.clone()
    }

    /// The API server does not recognize the token (401): there may be another by now.
    pub(super) fn refused(&self) {
        self.0.last.lock().fresh_until = None;
    }
}

/// The file is in memory, about a kB.
fn read(path: &Path) -> Result<HeaderValue, String> {
    let token = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    let token = token.trim();
    if token.is_empty() {
        return Err("it is empty".to_owned());
    }
    let header = HeaderValue::try_from(format!("Bearer {token}"));
    let mut header = header.map_err(|error| error.to_string())?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(token: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, token).unwrap();
        (folder, path)
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_was_replaced_is_used_within_a_minute() {
        let (_folder, path) = file("first\n");
        let token = TokenFile::open(&path).unwrap();
        std::fs::write(&path, "second").unwrap();
        assert_eq!(token.header(), "Bearer first");
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.header(), "Bearer second");
        std::fs::write(&path, "third").unwrap();
        assert_eq!(token.header(), "Bearer second", "not read for each request");
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_refusal_the_next_request_has_what_the_file_says_now() {
        let (_folder, path) = file("first");
        let token = TokenFile::open(&path).unwrap();
        std::fs::write(&path, "second").unwrap();
        token.refused();
        assert_eq!(token.header(), "Bearer second");
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_file_is_gone_the_last_token_stays_and_one_that_comes_is_used_at_once() {
        let (_folder, path) = file("first");
        let token = TokenFile::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.header(), "Bearer first");
        std::fs::write(&path, "second").unwrap();
        assert_eq!(token.header(), "Bearer second");
    }

    /// A careless writer truncates the file before rewriting it.
    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_empty_is_no_token_and_does_not_take_the_place_of_one() {
        let (_folder, path) = file(" \n");
        let error = TokenFile::open(&path).err().unwrap().to_string();
        assert!(error.ends_with("it is empty"), "{error}");
        let (_folder, path) = file("first");
        let token = TokenFile::open(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(token.header(), "Bearer first");
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_named_and_a_token_in_words_comes_before_it() {
        let nowhere = AuthInfo { token_file: Some("/no/such/token".into()), ..AuthInfo::default() };
        let error = TokenFile::of(&nowhere).err().unwrap().to_string();
        assert!(error.contains("/no/such/token"), "{error}");
        let both = AuthInfo { token: Some("inline".to_owned().into()), ..nowhere };
        assert!(TokenFile::of(&both).unwrap().is_none());
        assert!(TokenFile::of(&AuthInfo::default()).unwrap().is_none());
    }

    #[test]
    fn no_token_is_told() {
        let (_folder, path) = file("hunter2\u{7f}");
        let error = TokenFile::open(&path).err().unwrap().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        let (_folder, path) = file("hunter2");
        assert!(!format!("{:?}", read(&path).unwrap()).contains("hunter2"));
    }
}
