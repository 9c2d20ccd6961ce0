//! The checks, and their findings.

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    Ok,
    /// Works, but deserves attention.
    Warn,
    Fail,
    /// Could not be checked; the detail says why.
    Skip,
}

/// A check with its result.
#[derive(Debug)]
pub(super) struct Finding {
    pub(super) check: &'static Check,
    pub(super) outcome: Outcome,
    pub(super) detail: String,
}

/// A check. The meaning of an ID never changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    /// What to do if it does not pass.
    pub(super) hint: &'static str,
    /// What happens if nothing is done.
    pub(super) why: &'static str,
}

macro_rules! checks {
    ($($id:ident: $title:literal, $hint:literal, $why:literal;)*) => {
        $(pub(super) static $id: Check =
            Check { id: stringify!($id), title: $title, hint: $hint, why: $why };)*
        #[cfg(test)]
        static ALL: &[&Check] = &[$(&$id),*];
    };
}

checks! {
    K001: "API server reachable",
        "pass a kubeconfig (--kubeconfig), and try whether kubectl version reaches the server",
        "no other check can run";
    K002: "Kubernetes version supported (1.30 or newer, tested up to 1.36)",
        "upgrade the cluster",
        "validation and watches need features that older API servers lack";
    C001: "CRDs installed",
        "workload-operator crds | kubectl apply --server-side -f -",
        "the kind does not exist";
    C002: "CRDs are those of this binary",
        "workload-operator crds | kubectl apply --server-side -f -",
        "new fields are dropped silently, and bounds are not enforced";
    C003: "no other resource has the same plural or short names",
        "write the name in full, for example kubectl get apps.app.example.com",
        "kubectl picks one of the kinds that share a name, and not always the same one";
    R001: "account has every right it needs",
        "kubectl apply -k artifacts/rbac, and bind the role to the account in its namespaces",
        "forbidden writes fail, and the objects stay as they are";
    R002: "account has no further dangerous rights",
        "remove the right from the role that grants it",
        "an attacker who takes over the operator can use them";
    D001: "a valid object of each kind is accepted",
        "look at the admission policies and webhooks that the message names",
        "objects of that kind cannot be created";
    D002: "an invalid object of each kind is refused",
        "apply the CRDs of this binary, and look for admission policies that change objects",
        "invalid objects fail later instead of when they are applied";
    D003: "creating a GenericDaemon requires the right to create DaemonSets",
        "kubectl apply -k artifacts/policy",
        "anyone who may create a GenericDaemon can run any image on the nodes";
    P001: "operator pods ready",
        "kubectl describe pods -l app.kubernetes.io/name=workload-operator in its namespace",
        "no object is reconciled";
    P002: "leader lease fresh",
        "look at the operator's log: either it cannot reach the API server, or no replica runs",
        "without a leader nothing is written";
    P003: "operator's namespace enforces Pod Security restricted",
        "kubectl label namespace NAME pod-security.kubernetes.io/enforce=restricted",
        "pods with more privileges than the operator needs can be created there";
    M001: "metrics Service selects the operator's pods",
        "kubectl apply -k artifacts/default; its selector and port have to match the pods",
        "the operator's metrics are not scraped, and no alert about it fires";
    G001: "every GenericDaemon's label is on some node",
        "kubectl label node NODE KEY=VALUE, or correct spec.label",
        "it runs on no node, which may not be intended";
}

impl Check {
    pub(super) fn ok(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Ok, detail)
    }

    pub(super) fn warn(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Warn, detail)
    }

    pub(super) fn fail(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Fail, detail)
    }

    pub(super) fn skip(&'static self, detail: impl Into<String>) -> Finding {
        self.finding(Outcome::Skip, detail)
    }

    /// For a question that got no answer: skipped if the account may not ask, otherwise failed.
    pub(super) fn unasked(&'static self, error: &crate::client::Error) -> Finding {
        if error.is_forbidden() {
            self.skip(format!("this account may not look: {error}"))
        } else {
            self.fail(error.to_string())
        }
    }

    fn finding(&'static self, outcome: Outcome, detail: impl Into<String>) -> Finding {
        Finding { check: self, outcome, detail: detail.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `UPDATE_ARTIFACTS=1`, writes the file instead.
    #[test]
    fn the_documentation_has_a_section_for_each() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/CHECKS.md");
        let mut text = String::from(
            "# What `workload-operator check` checks\n\n\
             The command changes nothing. Exit code 0: no check failed; 1: a check failed; 2: the API server \
             was\nunreachable. A check for which the account lacks a right is skipped. An administrator's account \
             checks everything\nexcept the operator's own rights; the operator's ServiceAccount checks \
             those.\n\n\
             `--wait 2m` repeats the checks until none fails, for at most that long; `-o wide` adds \
             the consequence of each\nfailure, `-o json` is for machines.\n",
        );
        for Check { id, title, hint, why } in ALL {
            text.push_str(&format!("\n## {id}\n\n{title}. Otherwise {why}.\n\nTo fix: {hint}.\n"));
        }
        if std::env::var_os("UPDATE_ARTIFACTS").is_some() {
            std::fs::write(file, &text).unwrap();
        }
        let there = std::fs::read_to_string(file).unwrap_or_default();
        assert!(there == text, "docs/CHECKS.md is out of date: run hack/update-codegen.sh");
    }

    #[test]
    fn every_check_has_an_id_of_its_own_and_says_what_to_do_and_why() {
        let ids: std::collections::BTreeSet<_> = ALL.iter().map(|check| check.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for check in ALL {
            assert!(!check.hint.is_empty() && !check.why.is_empty(), "{}", check.id);
        }
    }
}
