#!/usr/bin/env bash
# Shows that the tests bite: puts bugs into a copy of the sources, one at a time, and runs for each
# the test that has to fail. What a bug is, and who has to catch it, is in hack/deliberate-bugs/.
#
#   hack/deliberate-bugs.sh             every bug
#   hack/deliberate-bugs.sh NAME...     these
#   CAUGHT_BY=--lib hack/deliberate-bugs.sh     those whose test command begins so
#   hack/deliberate-bugs.sh check       none: whether all of them are still valid Rust
#
# A test that a bug makes hang has caught it: it is ended after a minute and eight times as long as
# without the bug.
#
# All bugs are built at once, each behind a question to the environment (DELIBERATE_BUG=NAME), so
# that there is one build. Nothing of that is in the sources that ship: the copy is below target/.
#
# stdout is a table: bug, what is wrong, the first test that failed, or NOT CAUGHT.
# Exit status: 0 all were caught, 1 some were not, 2 wrong usage or a bug that fits no source.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"

readonly ROOT=${HACK_DIR%/*}
SCRATCH=$(realpath -m "${CARGO_TARGET_DIR:-$ROOT/target}")/deliberate-bugs
readonly SCRATCH
readonly TREE=$SCRATCH/tree # what cargo builds
readonly FRESH=$SCRATCH/fresh

declare -a NAMES=()
declare -A WHY=() SOURCE=() IS=() BECOMES=() CAUGHT=() # by name of the bug
declare -A LIMIT=()                                    # seconds, by test command

main() {
  local name missed=0
  case ${1:-} in
    -h | --help) usage && return ;;
    check)
      check # not in an && list, in which failures inside it would be passed over
      return
      ;;
  esac
  read_bugs
  choose "$@"
  put_all_in
  baseline
  printf '| Bug | What is wrong | Caught by |\n|---|---|---|\n'
  for name in "${NAMES[@]}"; do
    try "$name" || missed=$((missed + 1))
  done
  say "${#NAMES[@]} bugs, $missed not caught"
  ((missed == 0))
}

check() {
  local log=$SCRATCH/check.log
  read_bugs
  put_all_in
  cd "$TREE"
  CARGO_TARGET_DIR=$SCRATCH/target cargo check --locked --lib >"$log" 2>&1 ||
    give_up "$log" "a bug is no longer valid Rust"
  say "${#NAMES[@]} bugs: all are valid Rust"
}

# give_up LOG WHY: with the end of the log.
give_up() {
  tail -n 40 "$1" >&2
  die 2 "$2"
}

read_bugs() {
  local file word rest bug
  for file in "$HACK_DIR"/deliberate-bugs/*.bugs; do
    while read -r word rest; do
      case $word in
        '' | '#'*) ;;
        bug) bug=$rest && NAMES+=("$bug") ;;
        why) WHY[$bug]=$rest ;;
        file) SOURCE[$bug]=$rest ;;
        is) IS[$bug]=$rest ;;
        becomes) BECOMES[$bug]=$rest ;;
        caught) CAUGHT[$bug]=$rest ;;
        *) die 2 "$file: a line begins with '$word'" ;;
      esac
    done <"$file"
  done
}

# Keeps of NAMES those that are asked for.
choose() {
  local name wanted=()
  for name in "$@"; do
    [[ -n ${IS[$name]:-} ]] || die 2 "there is no bug '$name' in hack/deliberate-bugs/"
  done
  for name in "${NAMES[@]}"; do
    [[ $# == 0 || " $* " == *" $name "* ]] || continue
    [[ ${CAUGHT[$name]} == "${CAUGHT_BY:-}"* ]] && wanted+=("$name")
  done
  NAMES=("${wanted[@]}")
  ((${#NAMES[@]} > 0)) || die 2 "no bug is caught by '${CAUGHT_BY:-}'"
}

# Makes TREE a copy of the sources with all bugs in it.
put_all_in() {
  local name
  copy_sources
  for name in "${!IS[@]}"; do put_in "$name"; done
  ask_the_environment
  take_over
}

copy_sources() {
  local file
  rm -rf "$FRESH"
  mkdir -p "$FRESH" "$TREE"
  cd "$ROOT"
  while IFS= read -r -d '' file; do
    if [[ -e $file ]]; then printf '%s\0' "$file"; fi
  done < <(git ls-files -z --cached --others --exclude-standard) |
    tar --create --null --files-from=- | tar --extract --directory="$FRESH"
}

# Makes TREE the same as FRESH. What is as it was keeps its time, so that it is not built again.
take_over() {
  local file
  cd "$FRESH"
  find . -type f -exec sha256sum {} + >"$SCRATCH/sums"
  cd "$TREE"
  comm -13 <(cd "$FRESH" && find . -type f | sort) <(find . -type f | sort) | xargs -r rm --
  cd "$FRESH"
  while read -r file; do
    cp --parents "$file" "$TREE"
  done < <(cd "$TREE" && sha256sum --check --quiet "$SCRATCH/sums" 2>/dev/null | sed -n 's/: FAILED.*//p')
}

# A fragment stays an expression, or a statement, and both versions of it are there.
put_in() {
  local name=$1 is=${IS[$1]} becomes=${BECOMES[$1]} file=$FRESH/${SOURCE[$1]} text asked
  text=$(<"$file")
  [[ ${text#*"$is"} != "$text" ]] || die 2 "$name: ${SOURCE[$name]} has no: $is"
  [[ ${text#*"$is"*"$is"} == "$text" ]] || die 2 "$name: ${SOURCE[$name]} has it twice: $is"
  asked="crate::deliberate_bug(\"$name\")"
  case $becomes in
    *BUG*) becomes=${becomes//BUG/"$asked"} ;;
    *';') becomes="if $asked { $becomes } else { $is }" ;;
    *) becomes="(if $asked { $becomes } else { $is })" ;;
  esac
  printf '%s\n' "${text/"$is"/"$becomes"}" >"$file"
}

ask_the_environment() {
  tee --append "$FRESH/src/lib.rs" "$FRESH/crates/machinery/src/lib.rs" >/dev/null <<'END'

pub(crate) fn deliberate_bug(name: &str) -> bool {
    static CHOSEN: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| std::env::var("DELIBERATE_BUG").unwrap_or_default()) == name
}
END
}

# Runs the tests $2... with bug $1, or with none.
run_tests() {
  local name=$1 limit=()
  shift
  [[ -z $name ]] || limit=(timeout --kill-after=5 "${LIMIT[$*]}")
  cd "$TREE"
  DELIBERATE_BUG=$name CARGO_TARGET_DIR=$SCRATCH/target \
    "${limit[@]}" cargo test --locked "$@" </dev/null
}

# Builds all that is needed; without a bug every test passes, and there are some.
baseline() {
  local command started log=$SCRATCH/baseline.log
  while read -r command; do
    say "without a bug: cargo test $command"
    # shellcheck disable=SC2086 # one word per argument
    run_tests '' $command --no-run >"$log" 2>&1 ||
      give_up "$log" "the copy does not build: is a bug no longer valid Rust?"
    started=$SECONDS
    # shellcheck disable=SC2086
    run_tests '' $command >"$log" 2>&1 || give_up "$log" "it fails without a bug"
    LIMIT[$command]=$((60 + 8 * (SECONDS - started)))
    grep -q 'test result: ok. [1-9]' "$log" || die 2 "no test is called so: cargo test $command"
  done < <(for name in "${NAMES[@]}"; do printf '%s\n' "${CAUGHT[$name]}"; done | sort -u)
}

try() {
  local name=$1 log=$SCRATCH/$1.log status=0 by
  # shellcheck disable=SC2086
  run_tests "$name" ${CAUGHT[$name]} >"$log" 2>&1 || status=$?
  by=$(sed -n 's/^test \(.*\) \.\.\. FAILED.*/\1/p' "$log" | head -n 1)
  case $status:$by in
    0:*) by='NOT CAUGHT' ;;
    124:) by="${CAUGHT[$name]} (hangs)" ;;
    *:) by="${CAUGHT[$name]} (status $status)" ;;
  esac
  printf '| %s | %s | %s |\n' "$name" "${WHY[$name]}" "${by//|/\\|}"
  [[ $by != 'NOT CAUGHT' ]]
}

main "$@"
exit
