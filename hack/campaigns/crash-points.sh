#!/usr/bin/env bash
# The operator killed at every write it makes, at every event it is sent, and at every write of every
# recovery: all plans of docs/internals/FAULTS.md, which then go into one table for each of the three.
#
#   hack/campaigns/crash-points.sh           runs what the journal does not have yet, then prints the tables;
#                                  5,400 runs in all, two hours on 2 slow cores
#   hack/campaigns/crash-points.sh report    runs nothing, prints the tables
#
# Can be interrupted at any time: what has passed is in the journal, and what has failed is run again.
#
# Environment: CRASH_LANES (so many runs at the same time, default 10), CRASH_WORKLOADS (only these,
# with commas between), CRASH_JOURNAL (default target/crash-points.journal), CARGO_TARGET_DIR.
# Exit status: 0 all passed, 1 a plan failed, 2 wrong usage.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
readonly ROOT=${HACK_DIR%/*}
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-$ROOT/target}") # cargo is called in another folder
export CRASH_JOURNAL=${CRASH_JOURNAL:-$CARGO_TARGET_DIR/crash-points.journal}
export CRASH_LANES=${CRASH_LANES:-10}

main() {
  case ${1:-run} in
    run) run ;;
    report) report ;;
    help | -h | --help) usage ;;
    *) die 2 "unknown command '$1'; see hack/campaigns/crash-points.sh --help" ;;
  esac
}

run() {
  local failed=''
  cd "$ROOT"
  mkdir -p "$(dirname "$CRASH_JOURNAL")"
  # One after the other: each has all the lanes.
  for plans in killed_at_any_write killed_at_any_event killed_again_while_it_recovers; do
    CRASH_POINTS=all CRASH_PAIRS=all cargo test --locked --test contract -- "$plans" --include-ignored --nocapture || failed=yes
  done
  report
  [[ -z $failed ]] || die 1 "not all plans passed; those that failed are run again by the next call"
}

# The last word of the journal on each plan counts.
report() {
  [[ -r $CRASH_JOURNAL ]] || die 1 "there is no journal $CRASH_JOURNAL yet"
  awk -F '\t' '
    function kind(plan) { return plan ~ /, then write/ ? "Pairs" : plan ~ /^event / ? "Events" : "Writes" }
    NF >= 3 {
      if (!($1 in known)) { known[$1]; workloads[++n] = $1 }
      plan = $1 FS $2
      if (!(plan in word)) plans[kind($2), $1]++
      word[plan] = $3
    }
    END {
      for (plan in word) {
        split(plan, part, FS)
        row = kind(part[2]) SUBSEP part[1]
        if (word[plan] == "not met") not_met[row]++
        else if (split(word[plan], at, /recovered in | s$/) > 1) {
          passed[row]++
          if (at[2] + 0 > worst[row]) worst[row] = at[2] + 0
        } else failed[row]++
      }
      split("Writes Events Pairs", kinds, " ")
      for (k = 1; k <= 3; k++) {
        split("", sum)
        printf "| %s | Plans | Passed | Not met | Failed | Worst recovery |\n|---|---|---|---|---|---|\n", kinds[k]
        for (w = 1; w <= n; w++) {
          row = kinds[k] SUBSEP workloads[w]
          if (!(row in plans)) continue
          line(workloads[w], plans[row], passed[row], not_met[row], failed[row], worst[row])
          sum[1] += plans[row]; sum[2] += passed[row]; sum[3] += not_met[row]; sum[4] += failed[row]
          if (worst[row] > sum[5]) sum[5] = worst[row]
        }
        line("**all**", sum[1], sum[2], sum[3], sum[4], sum[5])
        print ""
      }
    }
    function line(label, all, passed, not_met, failed, worst) {
      printf "| %s | %d | %d | %d | %d | %.1f s |\n", label, all, passed, not_met, failed, worst
    }' "$CRASH_JOURNAL"
}

main "$@"
