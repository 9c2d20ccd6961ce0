#!/usr/bin/env bash
# The first process of hack/e2e.sh's private namespaces: what it starts ends with it, whatever
# happens. It makes the cluster and takes the steps.
set -euo pipefail
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
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
  show_installation
  restart_kubelets
  show_memcached
  show_other_kinds
  show_scaling
  show_token_rotation
  show_kill
  show_drain
  show_rollout
  show_ports
  [[ -z ${TOKEN_EXPIRY:-} ]] || show_token_expiry
  show_removal
}

line() { printf '%6ss  %-46s %s\n' "$(since "$BEGIN")" "$1" "${2:-}"; }

# The step's sentence, then what helps to find out why.
fail() {
  line "FAILED" "$*" >&2
  {
    kubectl get nodes,pods -A -o wide
    kubectl get events -A --sort-by=.lastTimestamp | tail -n 25
    kubectl -n "$SYSTEM" logs -l "app.kubernetes.io/name=$OPERATOR" --prefix --tail=20
  } >&2 2>/dev/null || true
  kill -USR1 $$ # from wherever this is called, also within $( )
  exit 1
}

kubectl() { "$KUBECTL" --cache-dir="$DIR/kubectl-cache" "$@"; }

SAID=''
trap 'SAID=yes; exit 1' USR1
trap 'status=$?; ((status == 0)) || [[ -n $SAID ]] || say "a command failed with $status below these lines of inside.sh: ${BASH_LINENO[*]}"' EXIT
main
exit
