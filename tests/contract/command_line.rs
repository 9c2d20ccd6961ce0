//! Output of the command line, without a cluster.

use std::io::Write;
use std::process::{Command, Stdio};

fn completions(shell: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
        .args(["completions", shell])
        .output()
        .unwrap();
    assert!(output.status.success(), "{shell}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_shell_has_completions_of_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = completions(shell);
        for word in ["check", "status", "manifests", "leader-elect", "operator-namespace", "wait"] {
            assert!(script.contains(word), "{shell} does not complete {word}");
        }
    }
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(completions("bash").as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[test]
fn bash_completes_a_command_a_flag_and_a_kind() {
    // The steps of bash after a user presses Tab.
    let script = r#"
        source /dev/stdin
        [[ $(complete -p workload-operator) =~ -F\ ([^ ]+) ]] && complete=${BASH_REMATCH[1]}
        tab() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            $complete workload-operator "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            printf '%s ' "${COMPREPLY[@]}"
        }
        tab workload-operator che; tab workload-operator check --wai; tab workload-operator status me
    "#;
    let mut bash = Command::new("bash")
        .args(["--norc", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(completions("bash").as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "check --wait memcached ");
}

#[test]
fn an_empty_variable_counts_as_unset() {
    let names = [
        "METRICS_SECURE",
        "WORKERS",
        "LOG_FORMAT",
        "LEADER_ELECT",
        "METRICS_BIND_ADDRESS",
        "RUST_LOG",
        "WATCH_NAMESPACE",
    ];
    for (arguments, reached) in [(&["check"][..], "K001"), (&[], "/there/is/none")] {
        let output = Command::new(env!("CARGO_BIN_EXE_workload-operator"))
            .args(arguments)
            .args(["--kubeconfig", "/there/is/none"])
            .envs(names.map(|name| (name, "")))
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains(reached) && !said.contains("invalid value"), "{said}");
    }
}
