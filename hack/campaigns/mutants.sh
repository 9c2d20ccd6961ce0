#!/usr/bin/env bash
# Changes the pure cores, one small change at a time, and reports the changes that no unit test notices
# (cargo-mutants; .cargo/mutants.toml names the cores and the tests).
#
#   hack/campaigns/mutants.sh [--files GLOB] [--shard K/N] [ARGUMENTS...]
#
#   --files GLOB   only these of the files that .cargo/mutants.toml names
#   --shard K/N    a part of the changes: every Nth, beginning with number K (0 to N-1)
#   ARGUMENTS      for cargo mutants: --list, --in-diff FILE, --re REGEX ...
#
# A change takes about half a minute on two cores. Results are in target/mutants.out: missed.txt has
# what no test noticed. The sources are changed in a copy.
#
# Environment: XDG_CACHE_HOME (cargo-mutants is built once, below it), TMPDIR (for the copy).
# Exit status: 0 every change was noticed, 2 some were not, 3 some tests took too long, others failed.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$HACK_DIR/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
readonly VERSION=27.1.0

ARGUMENTS=()
while (($# > 0)); do
  case $1 in
    -h | --help) usage && exit ;;
    --files) ARGUMENTS+=(--file "${2:?--files needs a glob}") && shift ;;
    --shard) ARGUMENTS+=(--shard "${2:?--shard needs K/N}" --sharding round-robin) && shift ;;
    *) ARGUMENTS+=("$1") ;;
  esac
  shift
done

cache_folder mutants
ROOT=$CACHE_FOLDER/$VERSION
if [[ ! -x $ROOT/bin/cargo-mutants ]]; then
  say "building cargo-mutants $VERSION (once; a few minutes) ..."
  cargo install --quiet --locked --root "$ROOT" cargo-mutants --version "$VERSION" >&2
fi
mkdir -p target
# The random tests as `.ci/run` has them.
export LEASE_WORLDS=5000 PROPTEST_CASES=2000
# Called as cargo calls it.
exec "$ROOT/bin/cargo-mutants" mutants --package workload-operator --package controller-machinery --output target --no-shuffle "${ARGUMENTS[@]}"
