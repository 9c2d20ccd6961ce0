#!/usr/bin/env bash
# Helm 4, and Helm 3 as helm3 in the same folder, at the versions that hack/helm/go.mod pins, built once per user.
#
#   hack/helm.sh build         build them if they are missing
#   hack/helm.sh which         print the path of a helm
#   hack/helm.sh ARGUMENTS...  run it
#
# It is looked for in $HELM (if set), in the cache folder, then on PATH (version 4 only).
#
# Environment: HELM, XDG_CACHE_HOME, GOFLAGS, GOPROXY.
# Exit status of build and which: 0 done, 1 failed, 2 HELM is wrong, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck source=hack/lib/go.sh
source "$HACK_DIR/lib/go.sh"

find_helm() {
  FOUND=${HELM:-}
  if [[ -n $FOUND ]]; then
    [[ -x $FOUND ]] || die 2 "HELM=$FOUND is no program"
    return
  fi
  cache_folder helm
  CACHED=$CACHE_FOLDER/$(sha256sum "$HACK_DIR/helm/go.sum" | cut -c 1-12)
  FOUND=$CACHED/helm
  [[ ! -x $FOUND ]] || return 0
  FOUND=$(type -P helm) && [[ $("$FOUND" version --short 2>/dev/null) == v4.* ]]
}

# build_program NAME VERSION_OF_HELM LINKER_FLAGS
build_program() {
  local file
  file=$(mktemp "$CACHED/.building.XXXXXX")
  (in_module "$HACK_DIR/helm" build -trimpath -ldflags "-s -w $3" -o "$file" "helm.sh/helm/$2/cmd/helm") ||
    { rm -f "$file" && die 1 "building $1 failed, see the lines above (GOPROXY=$(go env GOPROXY))"; }
  chmod 755 "$file"
  mv "$file" "$CACHED/$1"
}

build_helm() {
  type -P go >/dev/null && is_new_enough "$HACK_DIR/helm" ||
    die 3 "no helm, and no Go >= 1.$GO_NEEDED to build it: https://go.dev/dl"
  say "building helm (once; a few minutes) ..."
  mkdir -p "$CACHED"
  # Without a cluster, Helm 3 renders for this version of Kubernetes; 1.20 by default.
  build_program helm3 v3 "-X helm.sh/helm/v3/internal/version.version=$(version_of helm.sh/helm/v3) \
    -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 \
    -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$(version_of k8s.io/client-go | cut -d . -f 2)"
  # Last, because it shows that both are complete.
  build_program helm v4 "-X helm.sh/helm/v4/internal/version.version=$(version_of helm.sh/helm/v4)"
  FOUND=$CACHED/helm
}

version_of() { awk -v module="$1" '$1 == module { print $2 }' "$HACK_DIR/helm/go.mod"; }

case ${1:-} in
  build) find_helm || build_helm ;;
  which)
    find_helm || die 3 "helm is not built: hack/helm.sh build"
    printf '%s\n' "$FOUND"
    ;;
  '') usage && exit 2 ;;
  *)
    find_helm || build_helm
    exec "$FOUND" "$@"
    ;;
esac
