#!/usr/bin/env bash
# The operator in a cluster for real, with real pods: its image, built from the Dockerfile, runs
# in a Deployment on real nodes (kubelet, containerd, runc, kube-proxy, CoreDNS), and so does what
# it makes. Each line comes with the time at which it had come true.
#
#   hack/e2e.sh                  what takes a few minutes
#   hack/e2e.sh --token-expiry   and waits, for twelve more, until the operator's token expires
#   hack/e2e.sh if-there         if this machine can, in 25 minutes; says so if it cannot
#
#   sudo env PATH="$PATH" HOME="$HOME" hack/e2e.sh    where you are not root: sudo's PATH has no cargo
#
# It needs root on Linux, but no container engine, no registry and no cluster. All of it runs in
# private namespaces, of which nothing is left on the machine in the end; that is the last step.
# What Debian has it installs with apt-get, without the services of these packages; kubelet, kube-proxy and
# CoreDNS it builds with Go, once.
#
# What does not work before the operator comes is the machine's: pods of a cluster without it have
# to run and to be reached first. What does not work afterwards is the operator's, unless requests to
# the API server took many times as long as usual meanwhile.
#
# Environment (with sudo, set behind `env`): E2E_IMAGE (a docker archive: the operator's image, not built
# then), E2E_LOGS (a folder for all logs, however it ends), TMPDIR, XDG_CACHE_HOME, and that of
# hack/controlplane.sh.
# Exit status: 0 all came true, 1 something did not (the last line says what), 2 wrong usage,
# 3 this machine cannot: what is missing or does not work (0 with if-there).
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$HACK_DIR/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
# shellcheck source=hack/e2e/machine.sh
source hack/e2e/machine.sh
# shellcheck source=hack/e2e/images.sh
source hack/e2e/images.sh

HOLDER='' PREPARED=''
readonly IF_THERE_SECONDS=1500 # in which most is built if nothing is there yet

main() {
  case ${1:-} in
    '') TOKEN_EXPIRY='' ;;
    --token-expiry) TOKEN_EXPIRY=yes ;;
    if-there) if_there && return ;;
    -h | --help) usage && return ;;
    *) die 2 "unknown option '$1'; usage: e2e.sh [--token-expiry | if-there]" ;;
  esac
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'clean_up "$BASH_COMMAND"' EXIT
  BEGIN=$(now_us)
  DIR=$(mktemp -d "${TMPDIR:-/tmp}/workload-operator-e2e.XXXXXX")
  exec {LOCK}<"$DIR" && flock "$LOCK"
  CGROUP=${DIR##*/} # the name of all that is ours and has a name
  mkdir "$DIR/log"
  require_machine
  remove_remains
  prepare
  run_inside
  remove_cluster
  nothing_is_left
  line "nothing is left on the machine" "processes, mounts, interfaces, routes, rules, cgroups, settings"
  line "everything came true"
}

# For those to whom a machine that cannot is no failure: a line says what is not checked, and why.
if_there() {
  local status=0 what='the image and the manifests on real nodes, with real pods (hack/e2e.sh)' reason
  REASON_FILE=$(mktemp)
  export REASON_FILE
  # In a group of processes of its own, which timeout ends as a whole.
  timeout --kill-after=60 "$IF_THERE_SECONDS" "$BASH" hack/e2e.sh &
  HOLDER=$!
  trap 'kill "$HOLDER"' INT TERM
  wait "$HOLDER" || status=$?
  # A signal ends the wait, and then the group.
  while kill -0 "$HOLDER" 2>/dev/null; do wait "$HOLDER" || status=$?; done
  reason=$(<"$REASON_FILE")
  rm -f "$REASON_FILE"
  case $status in
    0) ;;
    3) say "NOT CHECKED: $what: ${reason:-see the lines above}" ;;
    # What was built so far is kept, so that another run gets further.
    124 | 137) say "NOT CHECKED: $what: not done within $((IF_THERE_SECONDS / 60)) minutes" ;;
    *) exit "$status" ;;
  esac
}

# With sudo, as the user who called it: builds leave no files of root in the user's home.
as_user() {
  if [[ -n ${SUDO_USER:-} ]]; then
    sudo --preserve-env --user "$SUDO_USER" -- env PATH="$PATH" HOME="$HOME" "$@"
  else
    "$@"
  fi
}

# What takes long and is done once comes first, outside of the namespaces: it needs the network.
prepare() {
  as_user hack/controlplane.sh build --with-kubelet
  as_user hack/e2e/binaries.sh build
  KUBECTL=$(hack/controlplane.sh which kubectl)
  line "programs are there" "control plane, kubelet, kube-proxy, CoreDNS"
  snapshot >"$DIR/before"
  make_images
  PREPARED=yes
  line "images made" "$OPERATOR_IMAGE, $MEMCACHED_IMAGE and others"
}

# Its end ends every process in there, however it comes about, and with them mounts, interfaces
# and rules. It ends, too, when this script is killed.
run_inside() {
  export HACK_DIR DIR CGROUP KUBECTL BEGIN TOKEN_EXPIRY
  E2E_MARK=$CGROUP setpriv --pdeathsig KILL unshare --mount --net --pid --fork --kill-child --mount-proc \
    --propagation private "$BASH" hack/e2e/inside.sh &
  HOLDER=$!
  local status=0
  wait "$HOLDER" || status=$?
  HOLDER=''
  ((status == 0 || status == 3)) || exit 1
  ((status == 0)) || exit 3 # in both cases it has said why
}

line() { printf '%6ss  %-46s %s\n' "$(since "$BEGIN")" "$1" "${2:-}"; }

# clean_up COMMAND: the last one.
clean_up() {
  local status=$?
  trap - EXIT INT TERM
  set +e
  # A command that failed where no failure was foreseen, before the operator came: the machine's.
  if ((status == 1)) && [[ -z $PREPARED && -z ${DIED:-} ]]; then
    say "failed: $1"
    [[ -z ${REASON_FILE:-} ]] || printf 'failed: %s\n' "$1" >"$REASON_FILE"
    status=3
  fi
  remove_cluster
  if [[ -n ${E2E_LOGS:-} ]]; then save_logs; fi
  remove_folder "$DIR"
  exit "$status"
}

save_logs() {
  local folder
  for folder in "$DIR"/log "$DIR"/*/log "$DIR"/*/pod-logs; do
    [[ -d $folder ]] || continue
    mkdir -p "$E2E_LOGS/${folder#"$DIR/"}"
    cp -r "$folder/." "$E2E_LOGS/${folder#"$DIR/"}"
  done
  cp "$DIR/plane/audit.log" "$E2E_LOGS" 2>/dev/null
}

main "$@"
exit
