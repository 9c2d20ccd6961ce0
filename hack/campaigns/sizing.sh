#!/usr/bin/env bash
# The table of docs/SIZING.md: memory and processor time of the operator with that many Apps, each with a
# Deployment and a Service, on an API server without controllers. A few minutes.
#
#   hack/campaigns/sizing.sh [COUNT...]      by default 100 1000 5000 10000
#
# Environment: OPERATOR, a release build (default: built).
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
# shellcheck source=hack/lib/wait.sh
source hack/lib/wait.sh
HACK_DIR=hack
[[ ${1:-} != -* ]] || { usage && exit 2; }
(($# > 0)) || set -- 100 1000 5000 10000
if [[ -z ${OPERATOR:-} ]]; then
  cargo build --quiet --release --locked --bin workload-operator
  OPERATOR=${CARGO_TARGET_DIR:-target}/release/workload-operator
fi
WORK=$(mktemp -d)
trap 'stop_operator; hack/controlplane.sh stop --dir "$WORK/plane" 2>/dev/null || true; rm -rf "$WORK"' EXIT
PID=''

stop_operator() {
  [[ -n $PID ]] || return 0
  kill "$PID" && wait "$PID" || true
  PID=''
}

start_operator() {
  : >"$WORK/log" # or the former run's lines would be found
  "$OPERATOR" --metrics-bind-address 0 --health-probe-bind-address 0 2>"$WORK/log" &
  PID=$!
}

# wait_until COMMAND...: until it succeeds, for ten minutes.
wait_until() { PAUSE=0.2 until_true 600 is_running "$@" || die 1 "waited in vain: $*: $(tail -n 3 "$WORK/log")"; }
is_running() { kill -0 "$PID" 2>/dev/null; }

have_deployments() { (($(kubectl get deployments --no-headers 2>/dev/null | wc -l) >= $1)); }
is_at_rest() {
  local before after
  before=$(cpu) && sleep 2 && after=$(cpu)
  ((after - before < 5))
}
cpu() { awk '{ print $14 + $15 }' "/proc/$PID/stat"; } # hundredths of a second
megabytes() { awk -v field="$1:" '$1 == field { printf "%.0f", $2 * 1024 / 1e6 }' "/proc/$PID/status"; }

apps() { # FROM TO
  local at
  for ((at = $1; at < $2; at++)); do
    printf '{"apiVersion":"app.example.com/v1","kind":"App","metadata":{"name":"app-%d"},"spec":{"image":"nginx:1.16.1","replicas":2,"envs":[{"name":"A","value":"b"}],"ports":[{"name":"http","port":8080,"targetPort":80}]}}\n' "$at"
  done
}

KUBECONFIG=$(hack/controlplane.sh start --only-api --dir "$WORK/plane" 2>"$WORK/plane.log") || { cat "$WORK/plane.log" >&2 && exit 1; }
export KUBECONFIG
kubectl() { "$KUBECTL" "$@"; }
KUBECTL=$(hack/controlplane.sh which kubectl)
kubectl apply --server-side -f artifacts/crds/ >/dev/null
kubectl wait --for=condition=Established crd --all >/dev/null

# planned COUNT: seconds of a plan of that many Apps without children.
planned() {
  local TIMEFORMAT=%0R seconds
  seconds=$({ time "$OPERATOR" plan --timeout 20m --memcached-image memcached:1 >"$WORK/plan" || true; } 2>&1)
  grep -q "; $((2 * $1)) to create, .* 0 problems" "$WORK/plan" || die 1 "the plan is wrong: $(tail -n 1 "$WORK/plan")"
  printf '%s for %s' "$seconds" "$1"
}

printf '| Apps | s of a plan without managed resources | MB idle | MB at most | s of CPU to create them | MB after a restart, at most | s of CPU of the restart |\n'
printf '|---|---|---|---|---|---|---|\n'
there=0
for count in "$@"; do
  apps "$there" "$count" | kubectl create -f - >/dev/null
  plan=$(planned $((count - there)))
  start_operator
  wait_until grep -q 'Ready to work' "$WORK/log"
  before=$(cpu)
  wait_until have_deployments "$count"
  wait_until is_at_rest
  row="$count | $plan | $(megabytes VmRSS) | $(megabytes VmHWM) | $(awk -v c=$(($(cpu) - before)) -v n=$((count - there)) 'BEGIN { printf "%.1f for %d", c / 100, n }')"
  stop_operator
  start_operator
  wait_until grep -q 'Ready to work' "$WORK/log"
  wait_until is_at_rest
  printf '| %s | %s | %s |\n' "$row" "$(megabytes VmHWM)" "$(awk -v c="$(cpu)" 'BEGIN { printf "%.1f", c / 100 }')"
  stop_operator
  there=$count
done
