//! The bugs of hack/deliberate-bugs/ still fit the sources: a bug that no longer fits anywhere
//! proves nothing. hack/deliberate-bugs.sh runs them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const FIELDS: [&str; 6] = ["bug", "why", "file", "is", "becomes", "caught"];

/// The bugs, each as its fields in order.
fn bugs() -> Vec<Vec<(String, String)>> {
    let mut bugs: Vec<Vec<(String, String)>> = Vec::new();
    for entry in fs::read_dir("hack/deliberate-bugs").expect("a folder") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a file");
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (field, value) = line.split_once(' ').expect("a field and its value");
            if field == "bug" {
                bugs.push(Vec::new());
            }
            let bug = bugs.last_mut().expect("a bug begins with its name");
            bug.push((field.to_owned(), value.trim().to_owned()));
        }
    }
    bugs
}

#[test]
fn every_deliberate_bug_still_fits_its_source_once_and_has_a_test_that_catches_it() {
    let mut names = BTreeSet::new();
    for bug in bugs() {
        let fields: Vec<&str> = bug.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(fields, FIELDS, "{bug:?}");
        let value = |at: usize| bug[at].1.as_str();
        let (name, file, is, becomes, caught) = (value(0), value(2), value(3), value(4), value(5));
        assert!(names.insert(name.to_owned()), "two bugs are called {name}");
        let source = fs::read_to_string(Path::new(file)).unwrap_or_default();
        assert_eq!(source.matches(is).count(), 1, "{name}: how often {file} has: {is}");
        assert_ne!(is, becomes, "{name}");
        assert!(caught.starts_with("--lib ") || caught.starts_with("--test "), "{name}: {caught}");
    }
    assert!(names.len() >= 20, "{names:?}");
}
