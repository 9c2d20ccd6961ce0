#!/usr/bin/env bash
# Drives the work queue's own source through every interleaving of small cases (loom) and through
# random schedules of large ones (shuttle). Takes a few minutes.
#
#   hack/campaigns/interleavings.sh [loom] [shuttle]      both, if none is named
#
# Environment: LOOM_MAX_PREEMPTIONS for a deeper or shallower search, SHUTTLE_SCHEDULES for more
# schedules, CARGO_TARGET_DIR.
set -euo pipefail
HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
case ${1:-} in help | -h | --help) usage && exit ;; esac
folder=$HACK_DIR/campaigns/interleavings
target=$(realpath -m "${CARGO_TARGET_DIR:-$HACK_DIR/../target}")/interleavings
cd "$folder"
(($# > 0)) || set -- loom shuttle
for tool in "$@"; do
  echo "== $tool"
  RUSTFLAGS="--cfg $tool" cargo test --locked --target-dir "$target/$tool" interleavings
done
