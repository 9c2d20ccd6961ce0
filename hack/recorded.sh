#!/usr/bin/env bash
# From bytes to key: our informer beside kube-runtime's watcher and reflector, both on the same
# recorded bytes (a streaming list of 20,000 Deployments, then 100,000 changes of them), in one
# thread, each in a process of its own. Prints the table of docs/PERFORMANCE.md.
#
#   hack/recorded.sh [RUNS]      default 5; medians are shown
#
# Needs cargo and 650 MB in target/recorded. Processor time is that of the process, so other work on
# the machine makes it longer only by what it takes from the caches. Allocations are counted in runs
# of their own.
# Exit status: 0 done, 1 failed.
set -euo pipefail
HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
case ${1:-} in help | -h | --help) usage && exit ;; esac
cd "$HACK_DIR/.."

runs=${1:-5}
target=${CARGO_TARGET_DIR:-$PWD/target}/recorded
cargo build --release --locked --manifest-path benches/recorded/Cargo.toml --target-dir "$target" >&2
recorded=$target/release/recorded
results=$target/results
rm -rf "$results"
mkdir -p "$results"
"$recorded" write "$target/watch"
for run in $(seq "$runs"); do
  for contender in ours kube-runtime bytes; do
    "$recorded" "$contender" "$target/watch" >"$results/$contender.timed.$run"
    # Allocations are the same each time.
    [[ $run != 1 ]] || "$recorded" "$contender" "$target/watch" count >"$results/$contender.counted.1"
  done
done
"$recorded" table "$results"
