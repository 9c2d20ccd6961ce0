#!/usr/bin/env bash
# The first process of hack/e2e.sh's private namespaces: what it starts ends with it, whatever
# happens. It makes the cluster and takes the steps.
set -euo pipefail
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck source=hack/lib/wait.sh
source "$HACK_DIR/lib/wait.sh"
# shellcheck source=hack/e2e/images.sh
source "$HACK_DIR/e2e/images.sh"
# shellcheck source=hack/e2e/cluster.sh
source "$HACK_DIR/e2e/cluster.sh"
# shellcheck source=hack/e2e/steps.sh
source "$HACK_DIR/e2e/steps.sh"
# shellcheck source=hack/e2e/steps-operator.sh
source "$HACK_DIR/e2e/steps-operator.sh"

main() {
  (($$ == 1)) || die 2 "is started by hack/e2e.sh"
  # The control plane's own folder of binaries is found as outside.
  read_image_names
  start_cluster
  line "cluster up" "$(kubectl version -o json 2>/dev/null | sed -n '/serverVersion/,/}/s/.*"gitVersion": "\(.*\)".*/Kubernetes \1/p'), nodes: $NODES"
  keep_asking
  prove_machine
  show_installation
  restart_kubelets
  show_memcached
  show_other_kinds
  show_templates
  show_crash_loop
  show_production_fields
  show_options
  show_scaling
  show_token_rotation
  show_kill
  show_drain
  show_rollout
  show_ports
  [[ -z ${TOKEN_EXPIRY:-} ]] || show_token_expiry
  show_removal
}

# shellcheck disable=SC2153 # hack/e2e.sh exports BEGIN
line() { printf '%6ss  %-46s %s\n' "$(since "$BEGIN")" "$1" "${2:-}"; }

# The step's sentence, then what helps to find out why.
fail() {
  local word=FAILED
  if [[ -z $MACHINE_PROVED ]]; then
    word='DOES NOT WORK HERE'
    [[ -z ${REASON_FILE:-} ]] || printf 'pods do not run here, without the operator: %s\n' "$*" >"$REASON_FILE"
  fi
  line "$word" "$*" >&2
  {
    kubectl get nodes,pods -A -o wide
    kubectl get events -A --sort-by=.lastTimestamp | tail -n 25
    kubectl -n "$SYSTEM" logs -l "app.kubernetes.io/name=$OPERATOR" --prefix --tail=20
  } >&2 2>/dev/null || true
  kill -USR1 $$ # from wherever this is called, also within $( )
  exit 1
}

# After a failure: 3 if it may be the machine's (see e2e.sh), else 1.
blame() {
  local slowest
  [[ -n $MACHINE_PROVED ]] || return 3
  slowest=$(slowest_answer)
  ((${slowest:-0} >= TOO_SLOW)) || return 1
  say "that says nothing of the operator: meanwhile a request to the API server took $slowest s"
  [[ -z ${REASON_FILE:-} ]] || printf 'too slow: a request to the API server took %s s\n' "$slowest" >"$REASON_FILE"
  return 3
}

on_exit() {
  local status=$?
  ((status != 0)) || return 0
  [[ -n $SAID ]] || say "a command failed with $status below these lines of inside.sh: ${BASH_LINENO[*]}"
  blame || exit $?
}

# Over SPDY: over WebSockets kubectl begins to read before it knows the command's output for what it
# is, and what comes too early is lost ("Unknown stream id 1, discarding message").
kubectl() { KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false "$KUBECTL" --cache-dir="$DIR/kubectl-cache" "$@"; }

SAID='' MACHINE_PROVED=''
trap 'SAID=yes; exit 1' USR1
trap on_exit EXIT
main
exit
