#!/usr/bin/env bash
# What the operator does, in one minute, on a real control plane: each line with the time that
# step really took.
#
#   hack/demo.sh                     everything on this machine; stays until Ctrl-C
#   hack/demo.sh --once              tears down at the end; exit status 0 only if all came true
#   hack/demo.sh --kubeconfig FILE   in the cluster that FILE's current context names
#
# Without --kubeconfig it starts a control plane of its own (hack/controlplane.sh, built on first
# use). In a cluster of yours it works in a namespace of its own and removes what it made, except
# for the CRDs, because removing those would delete every object of their kinds.
#
# Exit status: 0 all came true, 1 something did not (the last line says what), 2 wrong usage,
# 3 something has to be installed or set.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$HACK_DIR/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh

readonly NAMESPACE=workload-operator-demo
readonly OPERATOR_NAMESPACE=workload-operator-system
export MEMCACHED_IMAGE=${MEMCACHED_IMAGE:-memcached:1.6.26-alpine3.19}
readonly PATIENCE=60 # seconds for any one step
readonly IDLE_SECONDS=5

ONCE='' KUBECONFIG_OF_USER='' OPERATOR_PID='' WATCH_PID='' PLANE='' FILES='' LABELLED_NODES=''

main() {
  parse_options "$@"
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap clean_up EXIT
  FILES=$(mktemp -d)
  BEGIN=$(now_us)
  prepare
  show_memcached
  show_generic_daemon
  show_idle
  if [[ -n $ONCE ]]; then
    show_deletion
    line "everything came true"
  else
    stay
  fi
}

parse_options() {
  while (($# > 0)); do
    case $1 in
      --once) ONCE=yes ;;
      --kubeconfig)
        [[ -r ${2:-} ]] || die 2 "--kubeconfig needs a file that can be read, not '${2:-}'"
        KUBECONFIG_OF_USER=$(realpath "$2")
        shift
        ;;
      -h | --help)
        sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
        exit 0
        ;;
      *) die 2 "unknown option '$1'; usage: demo.sh [--once] [--kubeconfig FILE]" ;;
    esac
    shift
  done
}

# ---- the stage -----------------------------------------------------------------------------

prepare() {
  command -v cargo >/dev/null || die 3 "cargo is missing: install Rust from https://rustup.rs"
  if [[ -n $KUBECONFIG_OF_USER ]]; then
    export KUBECONFIG=$KUBECONFIG_OF_USER
  else
    hack/controlplane.sh build
  fi
  say "building the operator"
  cargo build --locked --bin workload-operator >&2
  BEGIN=$(now_us)
  if [[ -z $KUBECONFIG_OF_USER ]]; then
    PLANE=$FILES/controlplane
    KUBECONFIG=$(hack/controlplane.sh start --while-pid $$ --dir "$PLANE")
    export KUBECONFIG
    line "control plane up" "$(version), $(nodes_that_bear "" | wc -w) simulated nodes, private to this run"
  else
    line "cluster reached" "$(version)"
  fi
  install
  start_operator
}

version() { kubectl version -o json 2>/dev/null | sed -n '/serverVersion/,/}/s/.*"gitVersion": "\(.*\)".*/Kubernetes \1/p'; }

nodes_that_bear() { kubectl get nodes ${1:+-l "$1"} -o jsonpath='{.items[*].metadata.name}'; }

install() {
  kubectl apply --server-side -f artifacts/crds/ >/dev/null
  kubectl apply -f artifacts/rbac/ >/dev/null
  kubectl wait --for=condition=Established --timeout="${PATIENCE}s" -f artifacts/crds/ >/dev/null
  kubectl create namespace "$NAMESPACE" >/dev/null ||
    fail "namespace $NAMESPACE exists: kubectl delete namespace $NAMESPACE, or wait until it is gone"
  line "CRDs and rights applied" "kubectl apply -f artifacts/crds/ -f artifacts/rbac/"
}

# The operator runs here as it would in the cluster: under its own ServiceAccount, with nothing
# but the rights of artifacts/rbac/.
start_operator() {
  local token config=$FILES/operator.kubeconfig
  token=$(kubectl -n "$OPERATOR_NAMESPACE" create token workload-operator --duration=1h)
  (umask 077 && kubectl config view --raw --flatten --minify >"$config")
  kubectl --kubeconfig "$config" config set-credentials operator --token "$token" >/dev/null
  kubectl --kubeconfig "$config" config set-context --current --user operator >/dev/null
  "${CARGO_TARGET_DIR:-target}/debug/workload-operator" --kubeconfig "$config" \
    --metrics-bind-address 0 --health-probe-bind-address 0 --leader-elect=false \
    >"$FILES/operator.log" 2>&1 &
  OPERATOR_PID=$!
  local start
  start=$(now_us)
  until grep -q "Ready to work" "$FILES/operator.log"; do
    kill -0 "$OPERATOR_PID" 2>/dev/null || fail "the operator ended: $(tail -n 3 "$FILES/operator.log")"
    (($(now_us) - start < PATIENCE * 1000000)) ||
      fail "the operator is not ready after $PATIENCE s: $(tail -n 3 "$FILES/operator.log")"
    sleep 0.05
  done
  line "operator running" "under its own ServiceAccount"
}

# ---- the play ------------------------------------------------------------------------------

show_memcached() {
  local name=memcached-sample
  watch_deployment "$name"
  kubectl -n "$NAMESPACE" apply -f artifacts/examples/memcached.yaml >/dev/null
  line "create Memcached/$name, size 2" "kubectl apply -f artifacts/examples/memcached.yaml"
  wait_for memcached/"$name" Available
  expect memcached/"$name" '{.status.nodes}' "has 2 nodes" '^\["[^"]*","[^"]*"\]$'
  line "ready: 2 nodes" "kubectl wait --for=condition=Available memcached/$name"

  kubectl -n "$NAMESPACE" delete deployment "$name" --wait=false >/dev/null
  line "Deployment deleted by hand" "restored after $(between 'DELETED .*' 'ADDED .*')"
  wait_for memcached/"$name" Ready

  kubectl -n "$NAMESPACE" scale deployment "$name" --replicas=9 >/dev/null
  line "Deployment edited by hand, 2 to 9" "reverted after $(between 'MODIFIED 9' 'MODIFIED 2')"

  local refusal
  if refusal=$(kubectl -n "$NAMESPACE" patch memcached "$name" --type=merge -p '{"spec":{"size":9}}' 2>&1); then
    fail "size 9 was accepted"
  fi
  line "size 9: refused by the API server" "spec${refusal##*: spec}"

  kubectl -n "$NAMESPACE" scale memcached "$name" --replicas=3 >/dev/null
  line "scaled to 3" "Deployment followed after $(between 'MODIFIED 2' 'MODIFIED 3' since-now)"
  wait_for memcached/"$name" Available
  expect memcached/"$name" '{.status.readyReplicas}' "has 3 ready replicas" '^3$'
  line "ready: 3 nodes" "kubectl scale memcached $name --replicas=3"
  stop_watching
}

show_generic_daemon() {
  local nodes node
  nodes=$(nodes_that_bear logs)
  if [[ -z $nodes ]]; then
    nodes=$(nodes_that_bear "" | cut -d' ' -f1)
    label "$nodes"
  fi
  kubectl -n "$NAMESPACE" apply -f artifacts/examples/syslog.yaml >/dev/null
  line "create GenericDaemon/syslog" "on nodes labelled logs: $nodes"
  installed_on $nodes
  line "installed on exactly these"
  for node in $(nodes_that_bear '!logs'); do
    label "$node"
    line "label node $node" "kubectl label node $node logs=true"
    installed_on $nodes "$node"
    line "daemon there too"
    break
  done
}

show_idle() {
  local before after
  wait_until_settled
  before=$(writes)
  sleep "$IDLE_SECONDS"
  after=$(writes)
  [[ $before == "$after" ]] || fail "the operator wrote while nothing changed: $before, then $after"
  line "idle for $IDLE_SECONDS s" "0 writes"
}

show_deletion() {
  kubectl -n "$NAMESPACE" delete memcached,genericdaemon --all --timeout="${PATIENCE}s" >/dev/null ||
    fail "the objects were not deleted in $PATIENCE s"
  local left start
  start=$(now_us)
  until left=$(kubectl -n "$NAMESPACE" get deployment,daemonset,pod,service -o name) && [[ -z $left ]]; do
    (($(now_us) - start < PATIENCE * 1000000)) || fail "still there after $PATIENCE s: $left"
    sleep 0.2
  done
  line "deleted: all children gone" "kubectl delete memcached,genericdaemon --all"
}

stay() {
  printf '\n'
  kubectl -n "$NAMESPACE" get workloads,deployments,daemonsets,services,pods
  printf '\nTry it yourself:\n  export KUBECONFIG=%s\n' "$KUBECONFIG"
  printf '  kubectl -n %s get workloads\n' "$NAMESPACE"
  printf '  kubectl -n %s describe memcached memcached-sample\n' "$NAMESPACE"
  printf '  tail -f %s\n\nIt runs until Ctrl-C.\n' "$FILES/operator.log"
  wait "$OPERATOR_PID" || fail "the operator ended: $(tail -n 3 "$FILES/operator.log")"
}

# ---- what is looked at ---------------------------------------------------------------------

# line WHAT [DETAIL]: one line of the play, with the seconds since the stage was set.
line() { printf '%6ss  %-42s %s\n' "$(since "$BEGIN")" "$1" "${2:-}"; }

fail() {
  line "FAILED" "$*" >&2
  exit 1
}

wait_for() {
  kubectl -n "$NAMESPACE" wait "$1" --for="condition=$2" --timeout="${PATIENCE}s" >/dev/null ||
    fail "$1 is not $2 after $PATIENCE s: $(kubectl -n "$NAMESPACE" get "$1" -o jsonpath='{.status.conditions}')"
}

# expect OBJECT JSONPATH MEANING REGEX
expect() {
  local value start
  start=$(now_us)
  until value=$(kubectl -n "$NAMESPACE" get "$1" -o jsonpath="$2") && [[ $value =~ $4 ]]; do
    (($(now_us) - start < PATIENCE * 1000000)) || fail "$1 $3? No: $2 is '$value'"
    sleep 0.1
  done
}

# The daemon's pods run on exactly these nodes, and the status says so.
installed_on() {
  local wanted=$# want have start
  want=$(printf '%s\n' "$@" | sort | tr '\n' ' ')
  expect genericdaemon/syslog '{.status.installed}' "is installed on $wanted nodes" "^$wanted\$"
  start=$(now_us)
  until have=$(kubectl -n "$NAMESPACE" get pods -l app.kubernetes.io/instance=syslog \
    -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort | tr '\n' ' ') && [[ $have == "$want" ]]; do
    (($(now_us) - start < PATIENCE * 1000000)) || fail "syslog runs on '$have', not on '$want'"
    sleep 0.1
  done
}

label() {
  kubectl label node "$1" logs=true >/dev/null
  LABELLED_NODES+=" $1"
}

# A stream of the Deployment's changes, each line stamped when it arrives: what lies between two
# of them is what the operator took, without kubectl's own start.
watch_deployment() {
  : >"$FILES/changes"
  mkfifo "$FILES/watch"
  # Not through the function of that name: its process would be a shell's.
  "$KUBECTL" -n "$NAMESPACE" get deployments --watch --output-watch-events \
    -o jsonpath='{.type}{" "}{.object.spec.replicas}{"\n"}' >"$FILES/watch" 2>/dev/null &
  WATCH_PID=$!
  while read -r change; do printf '%s %s\n' "$(now_us)" "$change"; done \
    <"$FILES/watch" >>"$FILES/changes" &
}

stop_watching() {
  kill "$WATCH_PID" 2>/dev/null || true
  wait "$WATCH_PID" 2>/dev/null || true
  WATCH_PID=''
}

# between FIRST SECOND: waits for a change like SECOND after the last one like FIRST; prints the
# time between them.
between() {
  local start first second
  start=$(now_us)
  while :; do
    first=$(grep -nE "^[0-9]+ $1\$" "$FILES/changes" | tail -n 1) || true
    if [[ -n $first ]]; then
      second=$(tail -n +"$((${first%%:*} + 1))" "$FILES/changes" | grep -E "^[0-9]+ $2\$" | head -n 1) || true
      if [[ -n ${second:-} ]]; then break; fi
    fi
    (($(now_us) - start < PATIENCE * 1000000)) || fail "no change '$2' after '$1' in $PATIENCE s"
    sleep 0.02
  done
  first=${first#*:}
  printf '%d ms' $(((${second%% *} - ${first%% *}) / 1000))
}

# What the operator wrote so far: the API server's audit log says it exactly. In a cluster whose
# log is not at hand, the versions of everything the operator writes to.
writes() {
  if [[ -n $PLANE ]]; then
    grep "serviceaccount:$OPERATOR_NAMESPACE:workload-operator\"" "$PLANE/audit.log" |
      grep -cE '"verb":"(create|update|patch|delete)"' || true
  else
    kubectl -n "$NAMESPACE" get workloads,deployments,daemonsets,services \
      -o jsonpath='{.items[*].metadata.resourceVersion}'
  fi
}

wait_until_settled() {
  local before after start
  start=$(now_us)
  before=$(writes)
  while sleep 1 && after=$(writes) && [[ $before != "$after" ]]; do
    (($(now_us) - start < PATIENCE * 1000000)) || fail "the operator still writes after $PATIENCE s"
    before=$after
  done
}

clean_up() {
  local status=$?
  trap - EXIT INT TERM
  set +e
  if [[ -n $OPERATOR_PID && -n $KUBECONFIG_OF_USER ]]; then
    kubectl -n "$NAMESPACE" delete memcached,genericdaemon --all --timeout="${PATIENCE}s" >/dev/null 2>&1
  fi
  [[ -z $WATCH_PID ]] || stop_watching
  if [[ -n $OPERATOR_PID ]]; then
    kill "$OPERATOR_PID" 2>/dev/null
    wait "$OPERATOR_PID" 2>/dev/null
  fi
  if [[ -n $KUBECONFIG_OF_USER ]]; then
    kubectl delete namespace "$NAMESPACE" --wait=false >/dev/null 2>&1
    kubectl delete -f artifacts/rbac/ --ignore-not-found >/dev/null 2>&1
    for node in $LABELLED_NODES; do kubectl label node "$node" logs- >/dev/null; done
  elif [[ -n $PLANE ]]; then
    hack/controlplane.sh stop --dir "$PLANE" >/dev/null 2>&1
  fi
  if [[ -n $FILES ]]; then rm -rf "$FILES"; fi
  exit "$status"
}

kubectl() { "$KUBECTL" "$@"; }

KUBECTL=$(type -P kubectl || true)
[[ -n $KUBECTL ]] || KUBECTL=$(hack/controlplane.sh build && hack/controlplane.sh which kubectl)

main "$@"
