#!/usr/bin/env bash
# How long the store's lock is held, and readers wait for it, while a list of 100,000 objects takes
# the place of another: docs/PERFORMANCE.md, "Lock holds". Builds the store alone, with its lock
# clocked; takes about a minute. Exit status: 0 done, 1 failed.
set -euo pipefail
HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
case ${1:-} in help | -h | --help) usage && exit ;; esac
root=${HACK_DIR%/*}
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
cd "$root/benches/holds"
RUSTFLAGS="--cfg lock_holds" exec cargo run --quiet --release --locked --target-dir "$target/holds"
