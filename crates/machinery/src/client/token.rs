//! A token in a file: the kubelet replaces it long before it expires.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::HeaderValue;
use kube::config::AuthInfo;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Error;

/// Time before the file is reread. The kubelet replaces a token minutes before it expires. kube uses the wall clock
/// here: if that is set back by an hour, kube keeps one token for an hour.
const FRESH: Duration = Duration::from_secs(50);

/// A file with a token.
pub(super) struct TokenFile {
    path: PathBuf,
    /// The header for the last token that could be read, and when it was read.
    last: Mutex<(HeaderValue, Instant)>,
}

impl TokenFile {
    /// Returns the token file of these credentials, if any. `None` if there is a password, which takes precedence, or
    /// if the file is unreadable and a token is the fallback, as in client-go.
    ///
    /// # Errors
    /// [`Error::Config`] if it cannot be read or contains no token.
    pub(super) fn of(auth: &AuthInfo) -> Result<Option<TokenFile>, Error> {
        let has_password = auth.username.is_some() && auth.password.is_some();
        let Some(path) = auth.token_file.as_ref().filter(|_| !has_password) else {
            return Ok(None);
        };
        match TokenFile::open(Path::new(path)) {
            Err(_) if auth.token.is_some() => Ok(None),
            opened => opened.map(Some),
        }
    }

    fn open(path: &Path) -> Result<TokenFile, Error> {
        let header = bearer(path).map_err(|why| {
            Error::Config(format!("the token file {} cannot be used: {why}", path.display()))
        })?;
        Ok(TokenFile { path: path.to_owned(), last: Mutex::new((header, Instant::now())) })
    }

    /// Returns the header for the current token, or for the last one if the file cannot be read.
    pub(super) fn get(&self) -> HeaderValue {
        let mut last = self.last.lock();
        if last.1.elapsed() >= FRESH
            && let Ok(header) = bearer(&self.path)
        {
            *last = (header, Instant::now());
        }
        last.0.clone()
    }
}

/// Reads a token. The call does not block for long: the file is in memory and about 1 kB.
fn bearer(path: &Path) -> Result<HeaderValue, String> {
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
        assert!(!format!("{:?}", bearer(&path).unwrap()).contains("hunter2"));
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
}
