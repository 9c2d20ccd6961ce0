//! Sentences of messages: counts that agree with their noun and verb, and two sentences as one message. Pure.

/// Returns `count` with the form of the words that agrees with it: `1 node runs`, `2 nodes run`.
pub(crate) fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Returns a share of `all`: `1 of 3 replicas is ready`, `0 of 1 replica is ready`. `one` and `more` are forms of
/// the verb, `noun` is in the singular.
pub(crate) fn share(
    count: i32,
    all: i32,
    noun: &str,
    [one, more]: [&str; 2],
    what: &str,
) -> String {
    let plural = if all == 1 { "" } else { "s" };
    let verb = if count == 1 || all == 1 { one } else { more };
    format!("{count} of {all} {noun}{plural} {verb} {what}")
}

/// Joins two sentences. The first one can be another program's and end with a period.
pub(crate) fn join(first: &str, second: &str) -> String {
    let mut letters = second.chars();
    let begin = letters.next().map(String::from).unwrap_or_default();
    match first.ends_with(['.', '!', '?']) {
        true => format!("{first} {}{}", begin.to_uppercase(), letters.as_str()),
        false => format!("{first}; {}{}", begin.to_lowercase(), letters.as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_agree_with_their_count() {
        assert_eq!(counted(1, "node runs", "nodes run"), "1 node runs");
        assert_eq!(counted(0, "node runs", "nodes run"), "0 nodes run");
        let ready = |count, all| share(count, all, "replica", ["is", "are"], "ready");
        assert_eq!(ready(0, 1), "0 of 1 replica is ready");
        assert_eq!(ready(1, 3), "1 of 3 replicas is ready");
        assert_eq!(ready(2, 3), "2 of 3 replicas are ready");
    }

    #[test]
    fn two_sentences_have_one_sign_between_them() {
        let pod = "Pod a-1 crashes";
        assert_eq!(join("It timed out.", pod), "It timed out. Pod a-1 crashes");
        assert_eq!(join("1 of 2 is ready", pod), "1 of 2 is ready; pod a-1 crashes");
    }
}
