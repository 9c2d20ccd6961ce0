#!/usr/bin/env bash
# The Operator Lifecycle Manager that installs bundles, and what else takes them, at the versions that
# hack/olm/go.mod pins, built once per user. These are beside each other:
#
#   olm             its operator that runs what a ClusterServiceVersion asks for
#   catalog         its operator that resolves Subscriptions and carries out InstallPlans
#   crds.yaml       the CRDs that the two work on
#   registry        a server of catalogs (hack/olm/registry)
#   scorecard-test  the tests of operator-sdk's scorecard; it takes one's name, and the bundle in /bundle
#   operator-verify the Operator Framework's own validation of a bundle; always exits with 0
#
#   hack/olm.sh build         build them if they are missing
#   hack/olm.sh which         print olm's path
#   hack/olm.sh ARGUMENTS...  run olm
#
# Both of OLM's operators listen on port 8080 of all addresses, and go on without where it is taken.
#
# olm is looked for in $OLM (if set; the others have to be beside it), then in the cache folder; what is found
# nowhere, `build` builds with Go.
#
# Environment: OLM, XDG_CACHE_HOME, GOFLAGS, GOPROXY.
# Exit status of build and which: 0 done, 1 failed, 2 OLM is wrong, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
readonly MODULE=github.com/operator-framework/operator-lifecycle-manager
# shellcheck disable=SC2034 # tool.sh reads them
TOOL=olm PACKAGE=$MODULE/cmd/olm TOOL_VARIABLE=OLM
# shellcheck source=hack/lib/tool.sh
source "$HACK_DIR/lib/tool.sh"

find_elsewhere() { return 1; } # one on PATH has no CRDs beside it

linker_flags() { :; }

put_beside() {
  local folder=$1 temporary=$2 source file
  go_build catalog "$temporary" "$MODULE/cmd/catalog"
  mv "$temporary" "$folder/catalog"
  go_build registry "$temporary" ./registry
  mv "$temporary" "$folder/registry"
  go_build scorecard-test "$temporary" github.com/operator-framework/operator-sdk/images/scorecard-test
  mv "$temporary" "$folder/scorecard-test"
  go_build operator-verify "$temporary" github.com/operator-framework/api/cmd/operator-verify
  mv "$temporary" "$folder/operator-verify"
  source=$(in_module "$HACK_DIR/olm" list -m -f '{{.Dir}}' "$MODULE")
  for file in "$source"/deploy/chart/crds/*.yaml; do
    printf -- '---\n'
    cat "$file"
  done >"$temporary"
  mv "$temporary" "$folder/crds.yaml"
}

tool_main "$@"
