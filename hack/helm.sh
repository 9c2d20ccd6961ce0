#!/usr/bin/env bash
# helm, at the version that hack/helm/go.mod pins, built once per user.
#
#   hack/helm.sh build         build it if it is missing
#   hack/helm.sh which         print the path of a helm, built if need be
#   hack/helm.sh ARGUMENTS...  run it
#
# It is looked for in $HELM (if set), in the cache folder, then on PATH (version 4 only); what is
# found nowhere is built with Go.
#
# Environment: HELM, XDG_CACHE_HOME, GOFLAGS, GOPROXY.
# Exit status of build and which: 0 done, 1 failed, 2 HELM is wrong, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
readonly MODULE=$HACK_DIR/helm
readonly PACKAGE=helm.sh/helm/v4/cmd/helm
readonly GO_NEEDED=26 # Go 1.26, the `go` line of the module

main() {
  case ${1:-} in
    build) find_helm || build_helm ;;
    which)
      find_helm || build_helm
      printf '%s\n' "$FOUND"
      ;;
    '') sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}" && exit 2 ;;
    *)
      find_helm || build_helm
      exec "$FOUND" "$@"
      ;;
  esac
}

# Sets FOUND to a helm; fails, with CACHED as the place for it, if it has to be built.
find_helm() {
  local cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}} key
  if [[ -n ${HELM:-} ]]; then
    FOUND=$HELM
    [[ -x $FOUND ]] || die 2 "HELM=$HELM is no program"
    return
  fi
  [[ $cache == /* ]] || die 3 "set XDG_CACHE_HOME (or HOME) to an absolute path, for the built helm"
  key=$(cd "$MODULE" && { uname -sm; cat go.mod go.sum; } | sha256sum)
  CACHED=$cache/workload-operator/helm/${key:0:12}/helm
  FOUND=$CACHED
  [[ ! -x $FOUND ]] || return 0
  FOUND=$(type -P helm) && [[ $("$FOUND" version --short 2>/dev/null) == v4.* ]]
}

# Complete or not at all: it appears under its name when it is finished. Two at once do the work
# twice and do not collide.
build_helm() {
  local temporary version started
  require_go
  mkdir -p "${CACHED%/*}"
  temporary=$(mktemp "${CACHED%/*}/.building.XXXXXX")
  # shellcheck disable=SC2064 # its path as it is now
  trap "rm -f '$temporary' '$temporary.log'" EXIT
  version=$(sed -n 's|^\s*helm.sh/helm/v4 \(v[^ ]*\).*|\1|p' "$MODULE/go.mod")
  started=$(now_us)
  say "building helm $version (once; a few minutes) ..."
  in_module build -trimpath -ldflags "-s -w -X helm.sh/helm/v4/internal/version.version=$version" \
    -o "$temporary" "$PACKAGE" >"$temporary.log" 2>&1 &
  while kill -0 $! 2>/dev/null; do
    [[ ! -t 2 ]] || printf '\r  %4d s ' $((($(now_us) - started) / 1000000)) >&2
    sleep 0.5
  done
  if ! wait $!; then
    grep -v '^go: downloading' "$temporary.log" | tail -n 15 >&2 || true
    die 1 "building helm failed, see the lines above"
  fi
  chmod 755 "$temporary"
  mv "$temporary" "$CACHED"
  FOUND=$CACHED
  say "built in $(since "$started") s: $CACHED"
}

# go in the module, untouched by a workspace or a cross-compiling environment around it.
in_module() {
  local verb=$1
  shift
  cd "$MODULE" || exit
  CGO_ENABLED=0 GO111MODULE=on GOWORK=off GOOS='' GOARCH='' exec go "$verb" -mod=readonly "$@"
}

require_go() {
  local version minor
  type -P go >/dev/null ||
    die 3 "no helm and no Go to build it: install helm 4, or Go >= 1.$GO_NEEDED from https://go.dev/dl"
  # Asked inside the module: since 1.21, go fetches the toolchain that go.mod names by itself.
  version=$(cd "$MODULE" && GOWORK=off go env GOVERSION 2>/dev/null) || version=
  minor=${version#go1.}
  minor=${minor%%[!0-9]*}
  ((${minor:-0} >= GO_NEEDED)) ||
    die 3 "no helm, and Go >= 1.$GO_NEEDED is needed to build it: https://go.dev/dl"
}

main "$@"
