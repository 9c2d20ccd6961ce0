#!/usr/bin/env bash
# The table of docs/SIZING.md: that many objects of a kind are created at the same time, and the operator runs them on a
# control plane with simulated nodes and pods (kwok). Then it is idle. About 40 minutes on 2 cores.
#
#   hack/campaigns/sizing.sh [COUNT...]      by default 100 500 1000 5000
#
# Needs what hack/controlplane.sh needs, and `ss` (iproute2). Do nothing else on the machine meanwhile.
#
# Environment: OPERATOR, a release build (default: built); KINDS (default: memcached app genericdaemon); IDLE, the
# seconds for which the idle operator is measured (default 60).
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
# shellcheck source=hack/lib/wait.sh
source hack/lib/wait.sh
HACK_DIR=hack
[[ ${1:-} != -* ]] || { usage && exit 2; }
(($# > 0)) || set -- 100 500 1000 5000
readonly NODES=32 IDLE=${IDLE:-60}
if [[ -z ${OPERATOR:-} ]]; then
  cargo build --quiet --release --locked --bin workload-operator
  OPERATOR=${CARGO_TARGET_DIR:-target}/release/workload-operator
fi
WORK=$(mktemp -d) PID='' NAME=''
trap stop_all EXIT

main() {
  local kind count cells
  printf '| kind | objects | time until all are Ready (s) | peak memory (MB) | CPU time (s) | idle: requests per hour | traffic (kB/h) | CPU time (s/h) |\n'
  printf '|---|---|---|---|---|---|---|---|\n'
  for kind in ${KINDS:-memcached app genericdaemon}; do
    NAME=$(name_of "$kind")
    for count in "$@"; do
      start_all
      cells=$(measured "$kind" "$count")
      printf '| %s | %s | %s |\n' "$NAME" "$count" "$cells"
      stop_all
    done
  done
}

# measured KIND COUNT: the cells after the number of objects.
measured() {
  local number began ready
  for ((number = 0; number < $2; number++)); do object "$1" "$number"; done >"$WORK/objects"
  began=$EPOCHREALTIME
  kubectl create -f "$WORK/objects" >/dev/null &
  all_ready "$1" "$2"
  ready=$EPOCHREALTIME
  wait_until is_idle
  printf '%s | %s | %s | %s' "$(calc "$ready - $began" %.0f)" "$(megabytes VmHWM)" "$(calc "$(ticks) / 100" %.1f)" "$(idle)"
}

name_of() { # KIND
  case $1 in
    memcached) echo Memcached ;;
    app) echo App ;;
    genericdaemon) echo GenericDaemon ;;
    *) die 2 "KINDS are some of: memcached app genericdaemon" ;;
  esac
}

object() { # KIND NUMBER
  local version spec
  case $1 in
    memcached) version=cache.example.com/v1alpha1 spec='{"size":1}' ;;
    app) version=app.example.com/v1 spec='{"image":"nginx:1.27","ports":[{"port":80}]}' ;;
    genericdaemon)
      version=mydomain.com/v1beta1
      spec="{\"image\":\"agent:1\",\"label\":\"kubernetes.io/hostname=node-$(($2 % NODES))\"}"
      ;;
  esac
  printf '{"apiVersion":"%s","kind":"%s","metadata":{"name":"%s-%d"},"spec":%s}\n' "$version" "$NAME" "$1" "$2" "$spec"
}

# all_ready KIND COUNT: returns when so many objects have been Ready.
all_ready() {
  local columns='custom-columns=NAME:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status'
  local name ready watch
  local -A seen=()
  exec {watch}< <(exec "$KUBECTL" get "$1" --watch --no-headers -o "$columns" 2>/dev/null)
  while ((${#seen[@]} < $2)) && read -r name ready <&"$watch"; do
    [[ $ready != True ]] || seen[$name]=yes
  done
  kill $! 2>/dev/null || true
  exec {watch}<&-
  ((${#seen[@]} == $2)) || die 1 "the watch of $1 ended when ${#seen[@]} of $2 were Ready"
}

# idle: requests, kB and seconds of CPU per hour, extrapolated from IDLE seconds.
idle() {
  local before bytes cpu
  before=$(requests) cpu=$(ticks)
  bytes=$(traffic)
  calc "($(requests) - $before) * 3600 / $IDLE" '%.0f | '
  calc "$bytes * 3600 / $IDLE / 1000" '%.0f | '
  calc "($(ticks) - $cpu) / 100 * 3600 / $IDLE" %.1f
}

requests() { grep -c '"userAgent":"workload-operator' "$WORK/plane/audit.log" || true; }

# traffic: the bytes that the operator's connections carry in IDLE seconds, both ways. A connection counts from the
# first look at it to the last.
traffic() {
  local second
  for ((second = 0; second <= IDLE; second++)); do
    ss -Htnip state established | grep --no-group-separator -A 1 "pid=$PID," || true
    ((second == IDLE)) || sleep 1
  done | awk '
    /pid=/ { at = $3; next }
    { bytes = 0
      for (i = 1; i <= NF; i++) if ($i ~ /^bytes_(sent|received):/) { split($i, part, ":"); bytes += part[2] }
      if (!(at in first)) first[at] = bytes
      last[at] = bytes }
    END { for (at in last) sum += last[at] - first[at]; print sum + 0 }'
}

calc() { awk "BEGIN { printf \"$2\", $1 }"; } # EXPRESSION FORMAT
ticks() { awk '{ print $14 + $15 }' "/proc/$PID/stat"; } # hundredths of a second
megabytes() { awk -v field="$1:" '$1 == field { printf "%.0f", $2 * 1024 / 1e6 }' "/proc/$PID/status"; }
kubectl() { "$KUBECTL" "$@"; }

# wait_until COMMAND...: until it succeeds, for ten minutes.
wait_until() { PAUSE=0.2 until_true 600 is_running "$@" || die 1 "waited in vain: $*: $(tail -n 3 "$WORK/log")"; }
is_running() { kill -0 "$PID" 2>/dev/null; }
is_idle() {
  local before after
  before=$(ticks) && sleep 5 && after=$(ticks)
  ((after - before < 5))
}

start_all() {
  KUBECONFIG=$(hack/controlplane.sh start --nodes "$NODES" --dir "$WORK/plane" 2>"$WORK/plane.log") ||
    { cat "$WORK/plane.log" >&2 && exit 1; }
  export KUBECONFIG
  KUBECTL=$(hack/controlplane.sh which kubectl)
  kubectl apply --server-side -f artifacts/crds/ >/dev/null
  # It fails on a new definition whose status still is empty (kubernetes/kubernetes#66439).
  PAUSE=0.2 until_true 30 true kubectl wait --for=condition=Established crd --all >/dev/null 2>&1 ||
    die 1 "the CustomResourceDefinitions are not established"
  kubectl create namespace workload-operator-system >/dev/null
  "$OPERATOR" --leader-elect --memcached-image memcached:1.6.38-alpine --metrics-bind-address 0 \
    --health-probe-bind-address 0 2>"$WORK/log" &
  PID=$!
  wait_until grep -q 'Ready to work' "$WORK/log"
}

stop_all() {
  [[ -z $PID ]] || { kill "$PID" && wait "$PID"; } || true
  PID=''
  hack/controlplane.sh stop --dir "$WORK/plane" 2>/dev/null || true
  rm -rf "${WORK:?}"/*
}

main "$@"
rm -rf "$WORK"
