#!/usr/bin/env bash
# operator-verify, the Operator Framework's own validation of a bundle, at the version that
# hack/operator-verify/go.mod pins, built once per user. It always exits with 0: what it has to
# complain of stands on stderr.
#
#   hack/operator-verify.sh build         build it if it is missing
#   hack/operator-verify.sh which         print its path
#   hack/operator-verify.sh ARGUMENTS...  run it: manifests --operatorhub_validate target/bundle/manifests
#
# It is looked for in $OPERATOR_VERIFY (if set), then in the cache folder; what is found nowhere is
# built with Go.
#
# Environment: OPERATOR_VERIFY, XDG_CACHE_HOME, GOFLAGS, GOPROXY.
# Exit status of build and which: 0 done, 1 failed, 2 OPERATOR_VERIFY is wrong, 3 install or set
# something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck disable=SC2034 # tool.sh reads them
TOOL=operator-verify PACKAGE=github.com/operator-framework/api/cmd/operator-verify
# shellcheck disable=SC2034
TOOL_VARIABLE=OPERATOR_VERIFY
# shellcheck source=hack/lib/tool.sh
source "$HACK_DIR/lib/tool.sh"

find_elsewhere() { return 1; } # one on PATH does not tell its version

linker_flags() { :; }

tool_main "$@"
