//! The image's build context: the files that .dockerignore includes.

use std::path::{Component, Path, PathBuf};

use crate::packages::read;

/// Collects every file that `include_str!` includes.
fn included(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            included(&path, into);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        for (_, rest) in
            text.match_indices("include_str!(\"").map(|(at, found)| (at, &text[at + found.len()..]))
        {
            let (file, _) = rest.split_once('"').unwrap();
            into.push(resolved(&path.parent().unwrap().join(file)));
        }
    }
}

/// The path without `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut whole = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => assert!(whole.pop(), "{path:?}"),
            part => whole.push(part),
        }
    }
    whole
}

#[test]
fn every_included_file_is_in_the_build_context() {
    let needed =
        ["hack/build-static.sh", "Cargo.toml", "Cargo.lock", "benches/workqueue.rs", "src/main.rs"];
    let mut files = needed.map(PathBuf::from).to_vec();
    included(Path::new("src"), &mut files);
    included(Path::new("crates"), &mut files);
    assert!(files.iter().any(|file| file.starts_with("artifacts")), "{files:?}");
    let ignored = read(".dockerignore");
    let rules: Vec<&str> =
        ignored.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    // The last rule that matches a file counts.
    let kept = |file: &Path| rules.iter().rev().find_map(|rule| speaks(rule, file));
    for file in &files {
        assert!(file.exists(), "{file:?}");
        assert_ne!(kept(file), Some(false), "{file:?} is left out by .dockerignore");
    }
    for file in ["README.md", "docs/INSTALL.md", "tests/artifacts.rs", "hack/lib/say.sh"] {
        assert_eq!(kept(Path::new(file)), Some(false), "{file} makes the image anew");
    }
}

/// Returns whether the rule includes the file, if it matches: the file's path or a directory above it, with
/// `*` in a name.
fn speaks(rule: &str, file: &Path) -> Option<bool> {
    let (kept, pattern) = match rule.strip_prefix('!') {
        Some(pattern) => (true, pattern),
        None => (false, rule),
    };
    let pattern: Vec<_> = Path::new(pattern).components().collect();
    let parts: Vec<_> = file.components().take(pattern.len()).collect();
    let fits = |(wanted, part): (&Component<'_>, &Component<'_>)| {
        let (wanted, part) =
            (wanted.as_os_str().to_str().unwrap(), part.as_os_str().to_str().unwrap());
        match wanted.split_once('*') {
            Some((before, after)) => part.starts_with(before) && part.ends_with(after),
            None => wanted == part,
        }
    };
    (parts.len() == pattern.len() && pattern.iter().zip(&parts).all(fits)).then_some(kept)
}
