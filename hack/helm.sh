#!/usr/bin/env bash
# Helm 4, and Helm 3 as helm3 beside it, at the versions that hack/helm/go.mod pins, built once per user.
#
#   hack/helm.sh build         build it if it is missing
#   hack/helm.sh which         print the path of a helm
#   hack/helm.sh ARGUMENTS...  run it
#
# It is looked for in $HELM (if set), in the cache folder, then on PATH (version 4 only); what is found
# nowhere, `build` builds with Go.
#
# Environment: HELM, XDG_CACHE_HOME, GOFLAGS, GOPROXY.
# Exit status of build and which: 0 done, 1 failed, 2 HELM is wrong, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck disable=SC2034 # tool.sh reads them
TOOL=helm PACKAGE=helm.sh/helm/v4/cmd/helm TOOL_VARIABLE=HELM
# shellcheck source=hack/lib/tool.sh
source "$HACK_DIR/lib/tool.sh"

find_elsewhere() { FOUND=$(type -P helm) && [[ $("$FOUND" version --short 2>/dev/null) == v4.* ]]; }

linker_flags() { printf -- '-X helm.sh/helm/v4/internal/version.version=%s' "$1"; }

put_beside() {
  local version minor
  version=$(awk '$1 == "helm.sh/helm/v3" { print $2 }' "$HACK_DIR/helm/go.mod")
  # Without a cluster it renders for this version of Kubernetes; 1.20 by default.
  minor=$(awk '$1 == "k8s.io/client-go" { print $2 }' "$HACK_DIR/helm/go.mod" | cut -d . -f 2)
  go_build helm3 "$2" helm.sh/helm/v3/cmd/helm "-X helm.sh/helm/v3/internal/version.version=$version \
    -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=$minor"
  mv "$2" "$1/helm3"
}

tool_main "$@"
