#!/usr/bin/env bash
# Writes docs/KUBECTL.md: what kubectl prints of the three kinds, on a control plane of its own.
#
#   hack/update-kubectl-doc.sh          OPERATOR=PATH: this binary, instead of building one
#
# What differs from one run to the next (ages, times, UIDs, versions, the names of pods) is written
# as the same words each time, so that a difference in the file is a difference for a reader.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
# shellcheck source=hack/lib/wait.sh
source hack/lib/wait.sh

readonly DOC=docs/KUBECTL.md
FILES=$(mktemp -d)
OPERATOR_PID=''

main() {
  trap clean_up EXIT
  if [[ -z ${OPERATOR:-} ]]; then
    cargo build --quiet --locked
    OPERATOR=${CARGO_TARGET_DIR:-target}/debug/workload-operator
  fi
  KUBECONFIG=$(hack/controlplane.sh start --while-pid $$)
  export KUBECONFIG
  KUBECTL=$(hack/controlplane.sh which kubectl)
  prepare >&2
  document >"$FILES/doc"
  mv "$FILES/doc" "$DOC"
}

clean_up() {
  [[ -z $OPERATOR_PID ]] || kill "$OPERATOR_PID" 2>/dev/null || true
  rm -rf "$FILES"
}

k() { "$KUBECTL" "$@" 2>"$FILES/stderr" || { cat "$FILES/stderr" >&2; return 1; }; }

prepare() {
  k apply --server-side -f artifacts/crds/
  k wait --for=condition=Established crd --all
  MEMCACHED_IMAGE=memcached:1.6.26-alpine3.19 "$OPERATOR" \
    --metrics-bind-address=127.0.0.1:0 --health-probe-bind-address=127.0.0.1:0 \
    >"$FILES/operator.log" 2>&1 &
  OPERATOR_PID=$!
  for sample in memcached syslog nginx-app; do k apply -f "artifacts/examples/$sample.yaml"; done
  k wait --for=condition=Ready memcached/memcached-sample genericdaemon/syslog \
    apps.app.example.com/nginx-app --timeout=120s
}

document() {
  cat <<'TEXT'
# What kubectl shows

Written by hack/update-kubectl-doc.sh from what kubectl printed on a control plane with the samples
of artifacts/examples/ in it. Ages and times, UIDs, versions and the ends of pods' names are replaced by
fixed ones.

## Fields: `kubectl explain`

TEXT
  show explain memcached.spec
  show explain genericdaemon.spec.label
  printf '## Objects: `kubectl get`\n\n'
  show get memcached
  show get memcached -o wide
  show get genericdaemon -o wide
  printf '`apps` is also a short name of Applications in Argo CD; the group makes it unambiguous.\n\n'
  show get apps.app.example.com -o wide
  printf 'All kinds at once:\n\n'
  show get workloads
  printf '## Waiting: `kubectl wait`\n\nThe command returns when the pods of the newest spec, and no others, serve.\n\n'
  show patch memcached memcached-sample --type=merge -p '{"spec":{"size":3}}'
  show wait --for=condition=Ready memcached/memcached-sample --timeout=60s
  show wait --for=condition=Available memcached/memcached-sample --timeout=60s
  printf '## Conditions and Events: `kubectl describe`\n\n'
  show describe memcached memcached-sample
  printf '## Problems\n\nThe API server refuses values out of bounds:\n\n'
  show_refusal patch memcached memcached-sample --type=merge -p '{"spec":{"size":4}}'
  show_refusal patch genericdaemon syslog --type=merge -p '{"spec":{"label":"a b"}}'
  trouble
}

# A foreign Deployment that has the name of a new object.
trouble() {
  k create deployment taken --image=nginx >&2
  k apply -f - >&2 <<'YAML'
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata:
  name: taken
spec: {}
YAML
  k wait --for=condition=Degraded memcached/taken --timeout=60s >&2
  until_true 60 true was_refused || die 1 "no Event ErrResourceExists within 60 s"
  printf 'The conditions report later problems, with what to do; docs/REASONS.md lists all reasons:\n\n'
  show get memcached taken
  show describe memcached taken
}

was_refused() { [[ $(k get events --field-selector reason=ErrResourceExists -o name) ]]; }

# A command and what it prints.
show() {
  local said
  said=$(k "$@" | normalised) # by itself, so that one that fails ends this
  printf '```console\n$ kubectl %s\n%s\n```\n\n' "$(quoted "$@")" "$said"
}

# The same, of one that fails.
show_refusal() {
  local said
  said=$("$KUBECTL" "$@" 2>&1 >/dev/null | grep -v '^WARNING: version difference' || true)
  printf '```console\n$ kubectl %s\n%s\n```\n\n' "$(quoted "$@")" "$said"
}

# As one would type it.
quoted() {
  local word line=''
  for word in "$@"; do
    [[ $word != *[\{\ ]* ]] || word="'$word'"
    line+="$word "
  done
  printf '%s' "${line% }"
}

normalised() {
  sed -E \
    -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z/2026-01-01T00:00:00Z/g' \
    -e 's/(UID: +)[0-9a-f-]{36}/\100000000-0000-0000-0000-000000000000/' \
    -e 's/(Resource Version: +)[0-9]+/\11000/' \
    -e 's/-[0-9a-f]{8,10}-[a-z0-9]{5}/-0123456789-abcde/g' \
    -e 's/  [0-9]+s +(workload-operator)/  10s   \1/' \
    -e 's/( +)[0-9]+m?[0-9]*s$/\110s/' \
    -e 's/[ \t]+$//'
}

main "$@"
