# shellcheck shell=bash
# Waiting, always with a limit.

# until_true SECONDS ALIVE COMMAND...: asks COMMAND until it succeeds, each PAUSE seconds (default 0.05).
# Fails with 1 when SECONDS are over, and immediately with 2 when ALIVE (a function; `true` for none) fails:
# what is waited for will not come. The caller says what that was. Not to be called in $( ): a fail there
# ends nothing.
until_true() {
  local until_true_end=$((SECONDS + $1)) until_true_alive=$2
  shift 2
  until "$@"; do
    "$until_true_alive" || return 2
    ((SECONDS < until_true_end)) || return 1
    sleep "${PAUSE:-0.05}"
  done
}
