#!/usr/bin/env bash
# A profile of what the programs do most, for builds that put that together in memory and make
# little of the rest (profile-guided optimization). What it buys: docs/PERFORMANCE.md.
#
#   hack/pgo.sh [FILE]        default: target/pgo/profile.profdata. 14 minutes on 2 slow cores
#
#   PROFILE_DATA=FILE hack/build-static.sh BINARY                    the operator, for an image
#   RUSTFLAGS=-Cprofile-use=$PWD/FILE cargo build --release --target TRIPLE [--example foo]
#
# The operator and examples/foo.rs are built so that they count what they run, and then at work on a
# real API server: 1,000 Memcacheds, Apps and Foos and 100 GenericDaemons are created, both programs
# begin anew on what is there, and all that they made is deleted under them.
#
# A profile is of one revision and one compiler: functions that changed since are built as without it.
# --target has to be given (`rustc -vV`: host), so that build scripts and proc macros are built without.
#
# Environment: LLVM_PROFDATA (default: that of `rustup component add llvm-tools`, else the newest in
# PATH), CARGO_TARGET_DIR, and what hack/controlplane.sh knows.
# Exit status: 0 done, 1 failed, 2 wrong usage, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck source=hack/lib/wait.sh
source "$HACK_DIR/lib/wait.sh"
FILE=$(realpath -m -- "${1:-$HACK_DIR/../target/pgo/profile.profdata}")
cd "$HACK_DIR/.."

readonly NAMESPACE=pgo
export MEMCACHED_IMAGE=${MEMCACHED_IMAGE:-memcached:1.6.26-alpine3.19}
readonly EACH=1000        # Memcacheds, Apps, Foos
readonly DAEMONS=100      # GenericDaemons
readonly PATIENCE=600     # seconds for any one step
readonly END_SECONDS=60   # for a program that was told to end
readonly PROFDATA_SINCE=19 # the LLVM whose format of raw profiles rustc's (of 1.91 and later) still is

PIDS=()

main() {
  case ${1:-} in
    -h | --help) usage && return ;;
    -*) die 2 "unknown option '$1'; usage: hack/pgo.sh [FILE]" ;;
  esac
  find_profdata
  HOST=$(rustc -vV | sed -n 's/^host: //p')
  TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}")/pgo
  WORK=$(mktemp -d)
  trap clean_up EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  build
  stage
  play
  merge
}

clean_up() {
  local pid
  # Not before they have ended: their counts would come into a folder that is gone, and make it anew.
  for pid in "${PIDS[@]}"; do
    kill "$pid" 2>/dev/null || true
    until_true "$END_SECONDS" true ended "$pid" || kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  hack/controlplane.sh stop --dir "$WORK/controlplane" >/dev/null 2>&1 || true
  rm -rf "$WORK"
}

find_profdata() {
  local candidate version
  for candidate in ${LLVM_PROFDATA:-"$(rustc --print target-libdir)/../bin/llvm-profdata" \
    $(compgen -c llvm-profdata | sort -uVr)}; do
    version=$("$candidate" --version 2>/dev/null | sed -n 's/.*LLVM version \([0-9]*\).*/\1/p') || continue
    if ((${version:-0} >= PROFDATA_SINCE)); then
      PROFDATA=$candidate
      return
    fi
  done
  die 3 "no llvm-profdata of LLVM $PROFDATA_SINCE or later: rustup component add llvm-tools, or set LLVM_PROFDATA"
}

build() {
  say "building the programs that count"
  hack/controlplane.sh build
  # As the builds to come are made, else functions have other names: with the target named, and each by
  # itself, since examples are built with the dev-dependencies' features of crates.
  local part
  for part in '--bin=workload-operator' '--example=foo'; do
    RUSTFLAGS=-Cprofile-generate cargo build --quiet --locked --release --target "$HOST" \
      --target-dir "$TARGET_DIR" "$part"
  done
}

# ---- the stage -----------------------------------------------------------------------------

stage() {
  KUBECTL=$(hack/controlplane.sh which kubectl)
  KUBECONFIG=$(hack/controlplane.sh start --only-api --while-pid $$ --dir "$WORK/controlplane")
  export KUBECONFIG
  kubectl create namespace "$NAMESPACE" >/dev/null
  kubectl apply --server-side -f artifacts/crds/ -f artifacts/examples/foo-crd.yaml >/dev/null
  kubectl wait --for=condition=Established --timeout="${PATIENCE}s" crd --all >/dev/null
}

kubectl() { "$KUBECTL" "$@"; }

begin() {
  local built=$TARGET_DIR/$HOST/release name
  run workload-operator "$built/workload-operator" --metrics-bind-address 0 \
    --health-probe-bind-address 0 --leader-elect=false
  run foo "$built/examples/foo"
  for name in workload-operator foo; do wait_until grep -q "Ready to work" "$WORK/$name.log"; done
}

# run NAME PROGRAM ARGUMENTS...
run() {
  local name=$1
  shift
  LLVM_PROFILE_FILE=$WORK/raw/%p.profraw "$@" --kubeconfig "$KUBECONFIG" >"$WORK/$name.log" 2>&1 &
  PIDS+=($!)
}

# The counts are written when a program ends in order.
end() {
  local pid
  for pid in "${PIDS[@]}"; do
    kill "$pid"
    until_true "$END_SECONDS" true ended "$pid" || die 1 "a program that counts does not end: $(tail -n 3 "$WORK"/*.log)"
    wait "$pid" || die 1 "a program that counts failed: $(tail -n 3 "$WORK"/*.log)"
  done
  PIDS=()
}

ended() { ! kill -0 "$1" 2>/dev/null; }

# A second between questions: to list thousands of objects is much for the API server.
wait_until() {
  PAUSE=1 until_true "$PATIENCE" they_run "$@" || die 1 "not within $PATIENCE s: $*"
}

they_run() {
  local pid
  for pid in "${PIDS[@]}"; do
    ! ended "$pid" || die 1 "a program that counts ended: $(tail -n 3 "$WORK"/*.log)"
  done
}

# ---- the play ------------------------------------------------------------------------------

play() {
  begin
  say "creating $((3 * EACH + DAEMONS)) objects"
  objects | kubectl create -f - >/dev/null
  wait_until all_done
  say "beginning anew on what is there"
  end
  begin
  say "deleting what was made"
  # All of a kind with one request, which also waits for nothing.
  kubectl delete --raw "/apis/apps/v1/namespaces/$NAMESPACE/deployments" >/dev/null
  kubectl delete --raw "/apis/apps/v1/namespaces/$NAMESPACE/daemonsets" >/dev/null
  kubectl delete --raw "/api/v1/namespaces/$NAMESPACE/services" >/dev/null
  wait_until all_done
  end
}

objects() {
  local i
  for ((i = 0; i < EACH; i++)); do
    object cache.example.com/v1alpha1 Memcached "memcached-$i" '{"size": 2}'
    object app.example.com/v1 App "app-$i" '{"replicas": 2, "image": "nginx:1.16.1",
      "ports": [{"name": "http", "port": 8080, "targetPort": 80}]}'
    object samplecontroller.k8s.io/v1alpha1 Foo "foo-$i" '{"deploymentName": "foo-'"$i"'", "replicas": 1}'
    ((i >= DAEMONS)) ||
      object mydomain.com/v1beta1 GenericDaemon "daemon-$i" '{"image": "syslog:1", "label": "logs"}'
  done
}

# object API_VERSION KIND NAME SPEC
object() {
  printf '{"apiVersion": "%s", "kind": "%s", "metadata": {"namespace": "%s", "name": "%s"}, "spec": %s}\n' \
    "$1" "$2" "$NAMESPACE" "$3" "$4"
}

# Whether every object has a status, and everything is there that is made of them.
all_done() {
  (($(with_status memcacheds) == EACH)) && (($(with_status apps) == EACH)) &&
    (($(with_status foos) == EACH)) && (($(with_status genericdaemons) == DAEMONS)) &&
    (($(names deployments) == 3 * EACH)) && (($(names daemonsets) == DAEMONS)) &&
    (($(names services) == 2 * EACH)) # the Memcacheds' and the Apps'
}

with_status() {
  kubectl -n "$NAMESPACE" get "$1" -o jsonpath='{range .items[?(@.status)]}x{"\n"}{end}' | wc -l
}

names() { kubectl -n "$NAMESPACE" get "$1" -o name | wc -l; }

merge() {
  mkdir -p "${FILE%/*}"
  # Not --sparse: that what never ran is in it, with zeros, is what makes the rest small.
  "$PROFDATA" merge --output="$FILE" "$WORK"/raw/*.profraw
  say "the profile: $FILE"
}

main "$@"
