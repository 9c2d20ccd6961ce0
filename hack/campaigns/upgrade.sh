#!/usr/bin/env bash
# An earlier version of the operator, for the test that upgrades from it and back
# (tests/contract/upgrade.rs): its binary and its artifacts, built once per user.
#
#   hack/campaigns/upgrade.sh build    build it if it is missing
#   hack/campaigns/upgrade.sh which    print the folder with workload-operator and artifacts/
#   hack/campaigns/upgrade.sh          build it, and run the test
#
# The version is the latest tag; before the first release, or with UPGRADE_FROM, a commit.
#
# Environment: UPGRADE_FROM, XDG_CACHE_HOME.
# Exit status of build and which: 0 done, 1 failed, 2 wrong usage, 3 something is missing.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
cd "$HACK_DIR/.."

# With the pod templates of now: an earlier one restarts pods, as the changelog says.
readonly BEFORE_ANY_TAG=079be3e0aff99f553cc264b0e67d9185a7b1e756

main() {
  local from commit
  from=${UPGRADE_FROM:-$(git describe --tags --abbrev=0 HEAD^ 2>/dev/null || printf '%s' "$BEFORE_ANY_TAG")}
  commit=$(git rev-parse --verify --quiet "$from^{commit}") ||
    die 3 "this clone has no commit $from: git fetch --unshallow --tags"
  cache_folder "upgrade/$commit"
  case ${1:-run} in
    which)
      [[ -x $CACHE_FOLDER/workload-operator ]] || die 3 "$from is not built: hack/campaigns/upgrade.sh build"
      printf '%s\n' "$CACHE_FOLDER"
      ;;
    build) build "$commit" ;;
    run)
      build "$commit"
      cargo test --locked --test contract -- --ignored upgrade::
      ;;
    *) usage && exit 2 ;;
  esac
}

# The folder appears under its name when it is complete. Two concurrent builds do the work twice.
build() {
  [[ ! -x $CACHE_FOLDER/workload-operator ]] || return 0
  local building
  say "building the operator of $1 ..."
  mkdir -p "${CACHE_FOLDER%/*}"
  building=$(mktemp -d "$CACHE_FOLDER.XXXXXX")
  # shellcheck disable=SC2064 # It is local.
  trap "rm -rf '$building'" EXIT
  mkdir "$building/source"
  git archive "$1" | tar -x -C "$building/source"
  cp -r "$building/source/artifacts" "$building/"
  (cd "$building/source" && CARGO_TARGET_DIR=$building/target cargo build --quiet --locked --bin workload-operator) ||
    die 1 "the operator of $1 does not build"
  mv "$building/target/debug/workload-operator" "$building/"
  rm -rf "$building/source" "$building/target" "$CACHE_FOLDER"
  chmod 755 "$building"
  mv "$building" "$CACHE_FOLDER"
}

main "$@"
