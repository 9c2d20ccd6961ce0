# shellcheck shell=bash
# What the scripts in hack/ say, and how they give up. Everything goes to stderr: stdout is
# for results that another program reads.

((BASH_VERSINFO[0] >= 5)) || {
  printf '%s: needs bash 5 or newer, this is %s; on macOS: brew install bash\n' "${0##*/}" "$BASH_VERSION" >&2
  exit 3
}

say() { printf '%s\n' "$*" >&2; }

# die STATUS MESSAGE: one line that says what to do, then the exit status
# (1 something failed, 2 wrong usage, 3 something has to be installed or set). Who calls a script and
# says itself what is missing sets REASON_FILE to a file for the message.
die() {
  local status=$1
  shift
  # shellcheck disable=SC2034 # for traps: this end has a reason that was said
  DIED=yes
  [[ -z ${REASON_FILE:-} ]] || printf '%s\n' "$*" >"$REASON_FILE"
  [[ -n ${REASON_FILE:-} && $status == 3 ]] || say "${0##*/}: $*"
  exit "$status"
}

# Prints the head of the script that was called. Needs HACK_DIR: the script's own path may be a relative
# one, from another folder.
usage() {
  local script=$HACK_DIR/${0##*/}
  [[ -e $script ]] || script=$HACK_DIR/campaigns/${0##*/}
  sed -n '2,/^set -euo/{/^#/s/^# \{0,1\}//p;}' "$script"
}

# cache_folder NAME: sets CACHE_FOLDER to the one for what is built once per user. (Not printed: a die in
# $( ) would end nothing.)
cache_folder() {
  local cache=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}}
  [[ -n $cache ]] || die 3 "neither HOME nor XDG_CACHE_HOME is set; set XDG_CACHE_HOME to a folder for what is built once"
  [[ $cache == /* ]] || cache=$PWD/$cache
  # shellcheck disable=SC2034 # for the caller
  CACHE_FOLDER=$cache/workload-operator/$1
}

# Microseconds of a clock for durations; no process is started for it.
now_us() {
  local clock=${EPOCHREALTIME/[.,]/}
  printf '%s' "$clock"
}

# since START_US: seconds with one decimal.
since() {
  local tenths=$((($(now_us) - $1) / 100000))
  printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}
