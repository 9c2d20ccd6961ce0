#!/usr/bin/env bash
# What a real node needs that Debian has not: kubelet, kube-proxy and CoreDNS; and the exporter of memcached's
# metrics. Built from the Go
# modules beside this file, once per version, as hack/controlplane.sh builds its servers. It is no
# part of `hack/controlplane.sh build`: only hack/e2e.sh needs it.
#
#   hack/e2e/binaries.sh build        build what is missing
#   hack/e2e/binaries.sh which NAME   the path of kubelet, kube-proxy, coredns or memcached_exporter
#
# Exit status: 0 done, 1 failed, 2 wrong usage, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
ASSETS_NAME=e2e
RECIPES="
kubelet    kubernetes k8s.io/kubernetes/cmd/kubelet
kube-proxy kubernetes k8s.io/kubernetes/cmd/kube-proxy
coredns    coredns    github.com/coredns/coredns
memcached_exporter exporter github.com/prometheus/memcached_exporter/cmd/memcached_exporter
"
BUILD_PID=''
# shellcheck source=hack/lib/assets.sh
source "$HACK_DIR/lib/assets.sh"

main() {
  case ${1:-}:${2:-} in
    build:)
      same_version
      set_assets_dir
      trap on_exit EXIT
      # shellcheck disable=SC2046 # one word per binary
      require_binaries $(awk '{ print $1 }' <<<"$RECIPES")
      ;;
    which:?*)
      set_assets_dir
      find_binary "$2" || die 1 "$2 is not built yet: hack/e2e/binaries.sh build"
      printf '%s\n' "$FOUND"
      ;;
    *) die 2 "usage: binaries.sh build | which NAME" ;;
  esac
}

# A kubelet may not be newer than its API server.
same_version() {
  local module='k8s.io/kubernetes/cmd' newest server node
  newest=$(printf '%s\n' "$HACK_DIR"/controlplane/kubernetes-*/go.mod | sort -V | tail -n 1)
  server=$(pinned_version "$newest" "$module")
  node=$(pinned_version "$GO_MODULES/kubernetes/go.mod" "$module")
  [[ $server == "$node" ]] ||
    die 1 "$newest pins Kubernetes $server, hack/e2e/kubernetes $node; move the latter"
}

on_exit() {
  local status=$?
  if [[ -n $BUILD_PID ]]; then
    kill "$BUILD_PID" 2>/dev/null || true
    wait "$BUILD_PID" || true
    rm -f "$ASSETS_DIR"/.building.*
  fi
  exit "$status"
}

main "$@"
