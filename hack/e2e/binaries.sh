#!/usr/bin/env bash
# What hack/e2e.sh needs in addition to Kubernetes and Debian's packages: CoreDNS, and the exporter of memcached's metrics.
# Built from the Go modules next to this file, once per version.
#
#   hack/e2e/binaries.sh build        build what is missing
#   hack/e2e/binaries.sh which NAME   the path of coredns or memcached_exporter
#
# Exit status: 0 done, 1 failed, 2 wrong usage, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
ASSETS_NAME=e2e
RECIPES="
coredns            coredns  github.com/coredns/coredns
memcached_exporter exporter github.com/prometheus/memcached_exporter/cmd/memcached_exporter
"
BUILD_PID=''
# shellcheck source=hack/lib/assets.sh
source "$HACK_DIR/lib/assets.sh"

main() {
  case ${1:-}:${2:-} in
    build:)
      set_assets_dir ''
      trap on_exit EXIT
      # shellcheck disable=SC2046 # one word per binary
      require_binaries $(awk '{ print $1 }' <<<"$RECIPES")
      ;;
    which:?*)
      set_assets_dir ''
      find_binary "$2" || die 1 "$2 is not built yet: hack/e2e/binaries.sh build"
      printf '%s\n' "$FOUND"
      ;;
    *) die 2 "usage: binaries.sh build | which NAME" ;;
  esac
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
