#!/usr/bin/env bash
# Drives the work queue's own source through every interleaving of small cases (loom) and through
# random schedules of large ones (shuttle). Takes a few minutes. LOOM_MAX_PREEMPTIONS may be set
# for a deeper or shallower search; SHUTTLE_SCHEDULES for more schedules.
set -euo pipefail
folder=$(realpath "$(dirname "$0")/interleavings")
target=$(realpath -m "${CARGO_TARGET_DIR:-$folder/../../target}")/interleavings
cd "$folder"
for tool in "${@:-loom shuttle}"; do
  for one in $tool; do
    echo "== $one"
    RUSTFLAGS="--cfg $one" cargo test --locked --target-dir "$target/$one" interleavings
  done
done
