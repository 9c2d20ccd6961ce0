#!/usr/bin/env bash
# Random histories of the operator on an API server in memory: users, nodes, pods, faults and two processes
# (tests/operator/histories). `cargo test` plays a few of them.
#
#   hack/campaigns/histories.sh [COUNT] [SEED]   COUNT (default 1,000,000) histories from SEED (default: from the date)
#   hack/campaigns/histories.sh faults [NAME]    builds the operator with each fault of hack/campaigns/faults, or with
#                                                one of them, and asks whether 1,000 histories notice it
#
# A history takes 0.1 to 0.3 s of a core: 100,000 take one and a half to four hours on two cores. Stops at the third
# failure, and prints for each the steps that suffice.
# Environment: HISTORY_FAILURES (default 3), HISTORY_TIMELINE (print what happens in a history that fails).
# Exit status: 0 all passed (or every fault was noticed), 101 one failed, 1 a fault was not noticed.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$HACK_DIR/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh

histories() { cargo test --quiet --locked --profile campaign --test operator "$@"; }

# noticed NAME: in a copy of the sources with the fault, or with `none`, 1,000 histories fail.
noticed() {
  git worktree add --quiet --detach "$WORK" HEAD
  [[ $1 == none ]] || git -C "$WORK" apply "$PWD/hack/campaigns/faults/$1.patch" ||
    die 1 "hack/campaigns/faults/$1.patch does not apply"
  local status=0
  (cd "$WORK" && histories --no-run) || die 1 "with the fault $1, it does not build"
  (cd "$WORK" && HISTORY_SEED=1 HISTORIES=1000 HISTORY_FAILURES=1 histories histories -- --nocapture) >"$LOG" 2>&1 || status=$?
  git worktree remove --force "$WORK"
  ((status != 0)) || { printf 'MISSED   %s\n' "$1" && return 1; }
  printf 'noticed  %s, in history %s\n' "$1" "$(sed -n 's/^HISTORY_SEED=\([0-9]*\) .*/\1/p' "$LOG" | head -n 1)"
}

case ${1:-} in
  -h | --help) usage && exit ;;
  faults)
    # Its own: cargo takes a copy of the workspace for the workspace.
    CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}/faults")
    export CARGO_TARGET_DIR
    WORK=$(mktemp -d)/source LOG=$CARGO_TARGET_DIR/fault.log
    trap 'git worktree remove --force "$WORK" 2>/dev/null || true' EXIT
    ! noticed none || die 101 "histories fail without a fault: $LOG"
    missed=0
    for patch in hack/campaigns/faults/${2:-*}.patch; do noticed "$(basename "$patch" .patch)" || missed=1; done
    exit "$missed"
    ;;
esac
export HISTORIES=${1:-1000000} HISTORY_SEED=${2:-$(date --utc +%Y%m%d0000000)} HISTORY_FAILURES=${HISTORY_FAILURES:-3}
say "histories $HISTORY_SEED to $((HISTORY_SEED + HISTORIES - 1))"
histories histories -- --nocapture
