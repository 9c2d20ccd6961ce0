#!/usr/bin/env bash
# What the operator does, in one minute, on a real control plane: each line with the time that
# step really took.
#
#   hack/demo.sh                     everything on this machine; stays until Ctrl-C
#   hack/demo.sh --once              tears down at the end; exit status 0 only if all came true
#   hack/demo.sh --kubeconfig FILE   in the cluster that FILE's current context names
#
# Without --kubeconfig it starts a control plane of its own (hack/controlplane.sh, built on first
# use). In a cluster of yours it works in a namespace of its own, where it alone is looked after, and
# removes what it made, except for the CRDs, because removing those would delete every object of their
# kinds. It refuses a cluster in which an operator is installed, and changes nothing that is there.
#
# Exit status: 0 all came true, 1 something did not (the last line says what), 2 wrong usage,
# 3 something has to be installed or set.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$HACK_DIR/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
# shellcheck source=hack/lib/wait.sh
source hack/lib/wait.sh

readonly NAMESPACE=workload-operator-demo
readonly OPERATOR_NAMESPACE=workload-operator-system
export MEMCACHED_IMAGE=${MEMCACHED_IMAGE:-memcached:1.6.38-alpine}
PATIENCE=60 # seconds for any one step
readonly PATIENCE_WITH_PULLS=300 # where images are pulled first
readonly IDLE_SECONDS=5

ONCE='' KUBECONFIG_OF_USER='' KUBECTL='' BUILD_PID='' OPERATOR_PID='' WATCH_PID='' PLANE='' FILES=''
# What it made in the user's cluster, and therefore removes; MADE_RIGHTS and LABELLED_NODES are names.
MADE_NAMESPACE='' MADE_RIGHTS='' LABELLED_NODES=''

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
        PATIENCE=$PATIENCE_WITH_PULLS
        shift
        ;;
      -h | --help)
        usage
        exit 0
        ;;
      *) die 2 "unknown option '$1'; usage: demo.sh [--once] [--kubeconfig FILE]" ;;
    esac
    shift
  done
}

# ---- the stage -----------------------------------------------------------------------------

prepare() {
  # First of all: kubectl without it would speak to the default context's cluster.
  [[ -z $KUBECONFIG_OF_USER ]] || export KUBECONFIG=$KUBECONFIG_OF_USER
  command -v cargo >/dev/null || die 3 "cargo is missing: install Rust from https://rustup.rs"
  say "building the operator"
  # At the same time as the control plane: either alone leaves a processor idle while it downloads and links.
  cargo build --quiet --locked --bin workload-operator >&2 &
  BUILD_PID=$!
  KUBECTL=$(type -P kubectl || true)
  [[ -n $KUBECONFIG_OF_USER && -n $KUBECTL ]] || hack/controlplane.sh build
  [[ -n $KUBECTL ]] || KUBECTL=$(hack/controlplane.sh which kubectl)
  wait "$BUILD_PID" || die 1 "building the operator failed, see the lines above"
  BUILD_PID=''
  BEGIN=$(now_us)
  if [[ -z $KUBECONFIG_OF_USER ]]; then
    PLANE=$FILES/controlplane
    KUBECONFIG=$(hack/controlplane.sh start --while-pid $$ --dir "$PLANE")
    export KUBECONFIG
    line "control plane up" "$(version), $(nodes_that_bear "" | wc -w) simulated nodes, private to this run"
  else
    line "cluster reached" "$(version)"
    refuse_what_is_there
  fi
  install
  start_operator
}

version() { kubectl version -o json 2>/dev/null | sed -n '/serverVersion/,/}/s/.*"gitVersion": "\(.*\)".*/Kubernetes \1/p'; }

nodes_that_bear() { kubectl get nodes ${1:+-l "$1"} -o jsonpath='{.items[*].metadata.name}'; }

# Those without a taint that keeps pods away, one per line: a control plane's nodes usually have one.
open_nodes() {
  kubectl get nodes ${1:+-l "$1"} \
    -o jsonpath='{range .items[*]}{.metadata.name}{range .spec.taints[*]} {.effect}{end}{"\n"}{end}' |
    awk '!/ NoSchedule| NoExecute/ { print $1 }'
}

refuse_what_is_there() {
  local there
  there=$(kubectl get -f artifacts/rbac/ --ignore-not-found -o name)
  [[ -z $there ]] ||
    fail "an operator is installed in this cluster (${there%%$'\n'*}), the demo would change its permissions: use another cluster, or none"
  there=$(installed_operators)
  [[ -z $there ]] ||
    fail "an operator is installed in this cluster (deployment ${there%%$'\n'*}), two would look after the same objects: use another cluster, or none"
  there=$(kubectl get namespace "$NAMESPACE" --ignore-not-found -o name)
  [[ -z $there ]] ||
    fail "$there exists: kubectl delete namespace $NAMESPACE, or wait until it is gone"
}

# NAMESPACE/NAME of each Deployment that runs an operator. Names and labels of a Helm release are whatever
# its values say; that of the container is always the same. What runs outside the cluster is not found.
installed_operators() {
  kubectl get deployments --all-namespaces -o \
    jsonpath='{range .items[*]}{.metadata.namespace}/{.metadata.name}{range .spec.template.spec.containers[*]} {.name}{end}{"\n"}{end}' |
    awk '{ for (at = 2; at <= NF; at++) if ($at == "workload-operator") print $1 }'
}

# CRDs that are there stay as they are: others may use them.
install() {
  local crd
  for crd in artifacts/crds/*.yaml; do
    if [[ -z $(kubectl get -f "$crd" --ignore-not-found -o name) ]]; then
      kubectl apply --server-side -f "$crd" >/dev/null
    fi
  done
  # Created, not applied: what somebody else makes meanwhile is not ours to remove.
  kubectl create namespace "$NAMESPACE" >/dev/null || fail "namespace $NAMESPACE could not be created"
  MADE_NAMESPACE=yes
  MADE_RIGHTS=$(kubectl create -f artifacts/rbac/ -o name) || fail "not all of artifacts/rbac/ could be created"
  kubectl wait --for=condition=Established --timeout="${PATIENCE}s" -f artifacts/crds/ >/dev/null
  line "CRDs and permissions applied" "kubectl apply -f artifacts/crds/ -f artifacts/rbac/"
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
    --namespace "$NAMESPACE" --metrics-bind-address 0 --health-probe-bind-address 0 --leader-elect=false \
    >"$FILES/operator.log" 2>&1 &
  OPERATOR_PID=$!
  until_true "$PATIENCE" operator_runs grep -q "Ready to work" "$FILES/operator.log" ||
    fail "the operator is not ready after $PATIENCE s: $(tail -n 3 "$FILES/operator.log")"
  line "operator running" "under its own ServiceAccount"
}

operator_runs() {
  kill -0 "$OPERATOR_PID" 2>/dev/null || fail "the operator ended: $(tail -n 3 "$FILES/operator.log")"
}

# ---- the play ------------------------------------------------------------------------------

show_memcached() {
  local name=memcached-sample asked
  watch_deployment "$name"
  kubectl -n "$NAMESPACE" apply -f artifacts/examples/memcached.yaml >/dev/null
  line "create Memcached/$name, size 2" "kubectl apply -f artifacts/examples/memcached.yaml"
  wait_for memcached/"$name" Available
  expect memcached/"$name" '{.status.nodes}' "has 2 nodes" '^\["[^"]*","[^"]*"\]$'
  line "ready: 2 nodes" "kubectl wait --for=condition=Available memcached/$name"

  mark
  kubectl -n "$NAMESPACE" delete deployment "$name" --wait=false >/dev/null
  between 'DELETED .*' 'ADDED .*'
  line "Deployment deleted by hand" "restored after $BETWEEN ms"
  wait_for memcached/"$name" Ready

  mark
  kubectl -n "$NAMESPACE" scale deployment "$name" --replicas=9 >/dev/null
  between 'MODIFIED 9' 'MODIFIED 2'
  line "Deployment edited by hand, 2 to 9" "reverted after $BETWEEN ms"

  local refusal
  if refusal=$(kubectl -n "$NAMESPACE" patch memcached "$name" --type=merge -p '{"spec":{"size":9}}' 2>&1); then
    fail "size 9 was accepted"
  fi
  line "size 9: refused by the API server" "spec${refusal##*: spec}"

  mark
  kubectl -n "$NAMESPACE" scale memcached "$name" --replicas=3 >/dev/null
  asked=$(now_us)
  wait_for_change 'MODIFIED 3'
  if ((CHANGED_US > asked)); then
    line "scaled to 3" "Deployment followed $(((CHANGED_US - asked) / 1000)) ms after kubectl scale returned"
  else
    line "scaled to 3" "Deployment had followed when kubectl scale returned"
  fi
  wait_for memcached/"$name" Available
  expect memcached/"$name" '{.status.readyReplicas}' "has 3 ready replicas" '^3$'
  line "ready: 3 nodes" "kubectl scale memcached $name --replicas=3"
  stop_watching
}

show_generic_daemon() {
  local nodes node
  nodes=$(nodes_that_bear logs)
  if [[ -z $nodes ]]; then
    nodes=$(open_nodes "" | head -n 1)
    [[ -n $nodes ]] || fail "every node has a taint that keeps pods away"
    label "$nodes"
  fi
  kubectl -n "$NAMESPACE" apply -f artifacts/examples/syslog.yaml >/dev/null
  line "create GenericDaemon/syslog" "on nodes labelled logs: $nodes"
  # shellcheck disable=SC2086 # one word per node
  installed_on $nodes
  line "installed on exactly these"
  for node in $(open_nodes '!logs'); do
    label "$node"
    line "label node $node" "kubectl label node $node logs=true"
    # shellcheck disable=SC2086
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
  until_true "$PATIENCE" true children_are_gone || fail "still there after $PATIENCE s: $LEFT"
  line "deleted: nothing is left" "kubectl delete memcached,genericdaemon --all"
}

children_are_gone() {
  LEFT=$(kubectl -n "$NAMESPACE" get deployment,daemonset,pod,service -o name) && [[ -z $LEFT ]]
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
  until_true "$PATIENCE" true matches "$1" "$2" "$4" || fail "$1 $3? No: $2 is '$VALUE'"
}

matches() { VALUE=$(kubectl -n "$NAMESPACE" get "$1" -o jsonpath="$2") && [[ $VALUE =~ $3 ]]; }

# The daemon's pods run on exactly these nodes, and the status says so.
installed_on() {
  local wanted=$# want
  want=$(printf '%s\n' "$@" | sort | tr '\n' ' ')
  expect genericdaemon/syslog '{.status.installed}' "is installed on $wanted nodes" "^$wanted\$"
  until_true "$PATIENCE" true runs_on "$want" || fail "syslog runs on '$HAVE', not on '$want'"
}

runs_on() {
  HAVE=$(kubectl -n "$NAMESPACE" get pods -l mydomain.com/genericdaemon=syslog \
    -o jsonpath='{range .items[*]}{.spec.nodeName}{"\n"}{end}' | sort | tr '\n' ' ') && [[ $HAVE == "$1" ]]
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

# The changes that count are those from here on.
mark() { MARK=$(wc -l <"$FILES/changes"); }

# between FIRST SECOND: waits for the first change like FIRST since the mark and for the first one like
# SECOND after that; sets BETWEEN to the milliseconds between them. Not for $( ): a fail there ends nothing.
between() {
  local first
  wait_for_change "$1"
  first=$CHANGED_US
  wait_for_change "$2"
  BETWEEN=$(((CHANGED_US - first) / 1000))
}

# wait_for_change CHANGE: sets CHANGED_US to the time of the first one since the mark, and moves the mark
# behind it.
wait_for_change() {
  until_true "$PATIENCE" true changed "$1" || fail "no change '$1' in $PATIENCE s"
}

changed() {
  local found
  found=$(awk -v mark="$MARK" -v change="^[0-9]+ $1\$" 'NR > mark && $0 ~ change { print NR, $1; exit }' "$FILES/changes")
  [[ -n $found ]] || return 1
  read -r MARK CHANGED_US <<<"$found"
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
  until_true "$PATIENCE" true writes_nothing_for_a_second || fail "the operator still writes after $PATIENCE s"
}

writes_nothing_for_a_second() {
  local before
  before=$(writes) && sleep 1 && [[ $(writes) == "$before" ]]
}

clean_up() {
  local status=$?
  trap - EXIT INT TERM
  set +e
  [[ -z $BUILD_PID ]] || kill "$BUILD_PID" 2>/dev/null
  if [[ -n $OPERATOR_PID && -n $MADE_NAMESPACE && -n $KUBECONFIG_OF_USER ]]; then
    kubectl -n "$NAMESPACE" delete memcached,genericdaemon --all --timeout="${PATIENCE}s" >/dev/null 2>&1
  fi
  [[ -z $WATCH_PID ]] || stop_watching
  if [[ -n $OPERATOR_PID ]]; then
    kill "$OPERATOR_PID" 2>/dev/null
    wait "$OPERATOR_PID" 2>/dev/null
  fi
  if [[ -n $KUBECONFIG_OF_USER ]]; then
    [[ -z $MADE_NAMESPACE ]] || kubectl delete namespace "$NAMESPACE" --wait=false >/dev/null 2>&1
    # shellcheck disable=SC2086 # one word per object
    [[ -z $MADE_RIGHTS ]] ||
      kubectl -n "$OPERATOR_NAMESPACE" delete --ignore-not-found $MADE_RIGHTS >/dev/null 2>&1
    for node in $LABELLED_NODES; do kubectl label node "$node" logs- >/dev/null; done
  elif [[ -n $PLANE ]]; then
    hack/controlplane.sh stop --dir "$PLANE" >/dev/null 2>&1
  fi
  if [[ -n $FILES ]]; then rm -rf "$FILES"; fi
  exit "$status"
}

kubectl() { "$KUBECTL" "$@"; }

main "$@"
