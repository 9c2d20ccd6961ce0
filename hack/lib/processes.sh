# shellcheck shell=bash
# Daemons that outlive the script that started them, and are found again later.
#
# - A daemon is recorded in RUN_DIR/NAME.pid *before* it becomes the program, so that no moment
#   exists in which it runs unrecorded.
# - The record is "PID STARTTIME BOOT_ID": a process that got the same number later, or after a
#   reboot, is never mistaken for ours, so never killed.
# - A daemon holds none of the caller's files open: not its stdout (a caller that reads it to
#   the end would hang) and no lock.

read -r BOOT_ID </proc/sys/kernel/random/boot_id

# Sets STARTTIME (clock ticks since boot) of process $1; fails if it has ended or is a zombie.
read_starttime() {
  local line fields
  { read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
  # The name, field 2, may hold blanks and brackets: count after the last ") ".
  read -r -a fields <<<"${line##*) }"
  # A zombie with other threads is one whose main thread ended first: not gone yet.
  [[ ${fields[0]} != [ZX] || ${fields[17]} -gt 1 ]] || return 1
  STARTTIME=${fields[19]}
}

# spawn RUN_DIR NAME LOG COMMAND...: starts COMMAND as a daemon in a session of its own.
spawn() {
  local run_dir=$1 name=$2 log=$3
  shift 3
  rm -f "$run_dir/$name.pid" # of an earlier attempt
  (
    trap - EXIT INT TERM
    exec </dev/null >>"$log" 2>&1
    for fd in "/proc/$BASHPID/fd/"*; do
      fd=${fd##*/}
      if ((fd > 2 && fd != 255)); then eval "exec $fd>&-"; fi
    done
    read_starttime "$BASHPID"
    printf '%s %s %s\n' "$BASHPID" "$STARTTIME" "$BOOT_ID" >"$run_dir/$name.pid"
    exec setsid "$@"
  ) &
  # Recorded when this returns: else the caller could look for it too early.
  local spawned=$!
  disown # its end is ours to tell, not bash's
  while [[ ! -s $run_dir/$name.pid ]] && read_starttime "$spawned"; do sleep 0.01; done
}

# Sets PID of daemon NAME; fails if it no longer runs.
running() {
  local started boot
  PID=
  { read -r PID started boot <"$1/$2.pid"; } 2>/dev/null || return 1
  [[ $boot == "$BOOT_ID" ]] && read_starttime "$PID" && [[ $STARTTIME == "$started" ]]
}

# Names of the daemons that RUN_DIR knows and that still run, one per line.
running_names() {
  local file name
  for file in "$1"/*.pid; do
    name=${file##*/}
    name=${name%.pid}
    if running "$1" "$name"; then printf '%s\n' "$name"; fi
  done
}

# end RUN_DIR NAME...: kills them and returns when they have ended.
# SIGKILL immediately: what they store is thrown away next, so there is nothing to end in order.
end() {
  local run_dir=$1 name tries
  shift
  for name in "$@"; do
    if running "$run_dir" "$name"; then kill -KILL "$PID" 2>/dev/null || true; fi
  done
  for name in "$@"; do
    for ((tries = 0; tries < 500; tries++)); do
      running "$run_dir" "$name" || break
      sleep 0.02
    done
    if running "$run_dir" "$name"; then
      die 1 "$name (pid $PID) does not end, although it was sent SIGKILL; see: ps -o stat,wchan,cmd -p $PID"
    fi
    rm -f "$run_dir/$name.pid"
  done
}
