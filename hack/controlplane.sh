#!/usr/bin/env bash
# A real Kubernetes control plane on this machine's loopback, without a container engine:
# etcd, kube-apiserver, kube-controller-manager, kube-scheduler, and kwok, which plays the
# kubelets of a few simulated nodes.
#
#   hack/controlplane.sh build [OPTIONS]       build what is missing (once per pinned version): the newest
#                                              Kubernetes, another one, or all (--all)
#   hack/controlplane.sh start [OPTIONS]       prints the kubeconfig's path when all of it works
#   hack/controlplane.sh status [--dir DIR]    what runs: pids, ports, versions, files, nodes
#   hack/controlplane.sh stop [--dir DIR]      stops it and removes its files
#   hack/controlplane.sh which NAME [OPTIONS]  the path of a binary that `start` uses (kubectl ...); status 3 if
#                                              it is not built
#   hack/controlplane.sh versions              the versions of Kubernetes that it can be, oldest first
#   hack/controlplane.sh outdated              fails if a newer minor version of Kubernetes is published
#
#   --kubernetes-version VERSION   `build`, `start` and `which`: this version of Kubernetes' servers instead
#                     (hack/controlplane/kubernetes-VERSION); kubectl, etcd and kwok stay the same.
#                     `start` builds what is missing, too
#   --all             `build`: every version
#   --with-kubelet    `build`: also kubelet and kube-proxy, for real nodes (hack/e2e.sh)
#   --dir DIR         where its files are. One control plane per DIR, as many as you like.
#                     Default: ${XDG_STATE_HOME:-~/.local/state}/workload-operator/controlplane
#   --while-pid PID   stop automatically when process PID has ended; without --dir
#                     in a new temporary folder
#   --nodes N         simulated nodes node-0 ... (default 4, at least 3): node-0 and node-1 have
#                     the label logs=true, node-2 disk=ssd
#   --only-api        etcd and kube-apiserver alone
#   --real-nodes IP   no simulated nodes: the API server listens on IP, an address of this machine,
#                     for kubelets that come with certificates signed by DIR/pki/ca.key (hack/e2e.sh)
#
# Guarantees
# - stdout is the kubeconfig's path and nothing else, printed when the API server is ready, all
#   nodes are Ready and a pod was scheduled and ran. Progress and errors go to stderr.
# - A second `start` with the same DIR prints the same kubeconfig and changes nothing.
# - RBAC, Pod Security, audit log (DIR/audit.log) and ServiceAccount tokens work as in a cluster.
# - TLS is verified everywhere with a CA made for this start; the administrator's token is
#   random and, like all of DIR, only readable by its owner. Nothing listens beyond loopback,
#   --real-nodes apart.
# - What fails or is interrupted on the way leaves nothing running and no files.
# - After `stop` no process and no file is left. A process that is not ours is never killed.
#
# Environment: KUBEBUILDER_ASSETS (use these kube-apiserver, etcd, kubectl), XDG_CACHE_HOME,
# XDG_STATE_HOME, TMPDIR, GOFLAGS, GOGC (default 400),
# GOMEMLIMIT (default 1GiB), GOPROXY.
# Exit status: 0 done, 1 failed (`status`: not running), 2 wrong usage, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck source=hack/lib/wait.sh
source "$HACK_DIR/lib/wait.sh"
[[ -r /proc/self/stat ]] ||
  die 3 "needs Linux; on another system use a cluster you have (kind, minikube, ...) with --kubeconfig"
# shellcheck source=hack/lib/processes.sh
source "$HACK_DIR/lib/processes.sh"
# shellcheck source=hack/lib/assets.sh
source "$HACK_DIR/lib/assets.sh"

# Start order. The watchdog is first, so that it covers the others' start; stop ends it last.
# kube-apiserver-second is not started here: a test may start it, and it ends with the rest.
readonly COMPONENTS="watchdog etcd kube-apiserver kube-apiserver-second kube-controller-manager kube-scheduler kwok"
readonly SERVICE_RANGE=10.0.0.0/16
readonly SERVICE_IP=10.0.0.1 # of the Service `kubernetes`, the range's first address
readonly POD_RANGE=10.244.0.0/16
readonly LOOPBACK=127.0.0.1
readonly PORT_ATTEMPTS=5   # with other ports, when one is taken between choosing and listening
readonly START_SECONDS=120 # for each wait, generous for a busy machine

# ---- commands ------------------------------------------------------------------------------

main() {
  local command=${1:-}
  [[ $# == 0 ]] || shift
  DIR='' WHILE_PID='' NODES=4 WANTED_VERSION='' ALL_VERSIONS='' WITH_KUBELET='' ONLY_API='' REAL_NODES='' ADDRESS=$LOOPBACK NAME='' BUILD_PID=''
  case $command in
    build | start | stop | status | describe) parse_options "$command" "$@" ;;
    which)
      NAME=${1:?$(usage_error "which needs the name of a binary")}
      shift
      parse_options which "$@"
      ;;
    versions) kubernetes_versions && return ;;
    outdated) command_outdated && return ;;
    watch-process) DIR=$1 WHILE_PID=$2 ;; # ours alone: what --while-pid leaves running
    help | -h | --help) usage && return ;;
    *) usage_error "unknown command '$command'" ;;
  esac
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap on_exit EXIT
  case $command in
    build) command_build ;;
    start) command_start ;;
    stop) command_stop ;;
    status | describe) command_status ;;
    which) command_which ;;
    watch-process) watch_process ;;
  esac
}

usage_error() { die 2 "$*; usage: controlplane.sh build | start | status | stop | which NAME | versions | outdated | help"; }

parse_options() {
  local command=$1
  shift
  while (($# > 0)); do
    case $command:$1 in
      start:--only-api) ONLY_API=yes ;;
      build:--all) ALL_VERSIONS=yes ;;
      build:--with-kubelet) WITH_KUBELET=yes ;;
      start:--nodes | start:--real-nodes | start:--while-pid | *:--dir | \
        start:--kubernetes-version | build:--kubernetes-version | which:--kubernetes-version)
        [[ -n ${2:-} ]] || usage_error "$1 needs a value"
        case $1 in
          --dir) DIR=$2 ;;
          --kubernetes-version) WANTED_VERSION=$2 ;;
          --nodes) NODES=$2 ;;
          --real-nodes) REAL_NODES=yes ADDRESS=$2 ;;
          --while-pid) WHILE_PID=$2 ;;
        esac
        shift
        ;;
      *) usage_error "'$command' knows no option '$1'" ;;
    esac
    shift
  done
  [[ $NODES =~ ^0*([3-9]|[1-9][0-9]{1,2})$ ]] ||
    usage_error "--nodes must be a number from 3 to 999, not '$NODES'"
  NODES=$((10#$NODES))
  [[ $ADDRESS =~ ^[0-9.]+$ ]] || usage_error "--real-nodes must be an IPv4 address, not '$ADDRESS'"
  [[ $WHILE_PID =~ ^[0-9]*$ ]] || usage_error "--while-pid must be a process id, not '$WHILE_PID'"
  [[ -z $DIR || $DIR == /* ]] || DIR=$PWD/$DIR
}

default_dir() {
  local state=${XDG_STATE_HOME:-${HOME:+$HOME/.local/state}}
  [[ -n $state ]] || die 3 "neither HOME nor XDG_STATE_HOME is set; give --dir DIR"
  [[ $state == /* ]] || state=$PWD/$state
  DIR=$state/workload-operator/controlplane
}

# Whatever ends this script before START_DONE takes along what it started.
on_exit() {
  local status=$?
  trap - EXIT INT TERM
  if [[ -n $BUILD_PID ]]; then
    kill "$BUILD_PID" 2>/dev/null || true
    wait "$BUILD_PID" || true
    rm -f "$ASSETS_DIR"/.building.* "$SERVERS_DIR"/.building.*
  fi
  if [[ -n ${STARTING:-} ]]; then remove_control_plane; fi
  exit "$status"
}

command_build() {
  local versions version
  mapfile -t versions < <(kubernetes_versions)
  [[ -n $ALL_VERSIONS ]] || versions=("${WANTED_VERSION:-${versions[-1]}}")
  for version in "${versions[@]}"; do
    set_assets_dir "$version"
    require_binaries kube-apiserver kube-controller-manager kube-scheduler kubectl etcd kwok \
      ${WITH_KUBELET:+kubelet kube-proxy}
    say "the control plane of Kubernetes $version is built: $SERVERS_DIR"
  done
}

command_which() {
  set_assets_dir "$WANTED_VERSION"
  [[ $RECIPES == *$'\n'"$NAME "* ]] || usage_error "'$NAME' is no binary of the control plane"
  find_binary "$NAME" || die 3 "$NAME is not built yet: hack/controlplane.sh build${WANTED_VERSION:+ --kubernetes-version $WANTED_VERSION}"
  printf '%s\n' "$FOUND"
}

# A version counts when its module can be fetched, so that the next step can be done.
command_outdated() {
  local newest published
  newest=$(kubernetes_versions | tail -n 1)
  published=$(in_module "$GO_MODULES/kubernetes-$newest" list -m -f '{{.Version}}' k8s.io/kubernetes@latest) ||
    die 3 "cannot ask for the newest version of k8s.io/kubernetes"
  published=${published#v}
  say "published: $published; newest here: $newest"
  [[ $(printf '%s\n' "$newest" "${published%.*}" | sort -V | tail -n 1) == "$newest" ]] ||
    die 1 "Kubernetes ${published%.*} is published: add hack/controlplane/kubernetes-${published%.*}"
}

command_start() {
  local started
  still_wanted
  require_tools
  set_assets_dir "$WANTED_VERSION"
  if [[ -n $ONLY_API ]]; then
    require_binaries etcd kube-apiserver kubectl
  elif [[ -n $REAL_NODES ]]; then
    require_binaries etcd kube-apiserver kubectl kube-controller-manager kube-scheduler
  else
    require_binaries etcd kube-apiserver kubectl kube-controller-manager kube-scheduler kwok
  fi
  find_binary kubectl
  KUBECTL=$FOUND

  started=$(now_us)
  # Memory for time: of the API server's 5.6 s of processor time until it is ready, 1.3 are the collector's.
  export GOGC=${GOGC:-400} GOMEMLIMIT=${GOMEMLIMIT:-1GiB}
  umask 077
  make_dir
  lock_dir
  if is_up; then
    say "already running in $DIR"
    [[ -z $WHILE_PID ]] || say "--while-pid has no effect on it: it ends as its first start said"
    printf '%s\n' "$DIR/kubeconfig"
    return
  fi
  claim_dir
  STARTING=yes

  say "starting a control plane in $DIR"
  [[ -z $WHILE_PID ]] || spawn "$DIR/run" watchdog "$DIR/log/watchdog.log" \
    "$BASH" "$HACK_DIR/controlplane.sh" watch-process "$DIR" "$WHILE_PID"
  make_credentials
  start_etcd
  start_apiserver
  [[ -n $ONLY_API ]] || start_the_rest
  say "up after $(since "$started") s"

  # From here on it runs without us. The file READY shows this to a later start.
  : >"$DIR/READY"
  STARTING=
  printf '%s\n' "$DIR/kubeconfig"
}

command_stop() {
  [[ -n $DIR ]] || default_dir
  if [[ ! -e $DIR ]]; then
    say "not running: there is no $DIR"
    return
  fi
  must_be_ours
  lock_dir
  [[ -e $DIR/run/made-dir ]] || die 1 "$DIR is not the folder of a control plane; it stays as it is"
  remove_control_plane
  say "stopped; $DIR is removed"
}

command_status() {
  local name ports line
  [[ -n $DIR ]] || default_dir
  [[ ! -e $DIR ]] || must_be_ours
  if [[ ! -d $DIR/run ]] || ! is_up; then
    printf 'not running: %s\n' "$DIR"
    [[ -z $(running_names "$DIR/run") ]] ||
      printf 'but some of it does; end it with: hack/controlplane.sh stop --dir %q\n' "$DIR"
    return 1
  fi
  set_assets_dir
  printf 'directory   %s\nkubeconfig  %s\naudit log   %s\nlogs        %s\n\n' \
    "$DIR" "$DIR/kubeconfig" "$DIR/audit.log" "$DIR/log"
  printf '%-24s %8s  %-14s %s\n' COMPONENT PID PORTS PROGRAM
  for name in $COMPONENTS; do
    running "$DIR/run" "$name" || continue
    ports=-
    [[ ! -s $DIR/run/$name.ports ]] || read -r ports <"$DIR/run/$name.ports"
    line=$(readlink "/proc/$PID/exe" || true)
    [[ $name != watchdog ]] || line="stops all of this when process $(<"$DIR/run/while-pid") has ended"
    printf '%-24s %8d  %-14s %s\n' "$name" "$PID" "${ports/ /,}" "$line"
  done
  find_binary kubectl || return 0
  KUBECTL=$FOUND
  printf '\nserver      %s\n' "$(kube get --raw /version | sed -n 's/.*"gitVersion": "\(.*\)".*/\1/p')"
  printf 'kubectl     %s\n\n' "$KUBECTL"
  kube get nodes --label-columns=logs,disk
}

# ---- the folder ----------------------------------------------------------------------------

# DIR/run/          a .pid (and .ports) file per process; made-dir (was DIR ours to make?)
# DIR/READY         the start was completed
# DIR/kubeconfig    the administrator's; kubeconfigs of the components are in run/
# DIR/audit.log, DIR/log/, DIR/pki/, DIR/etcd/

make_dir() {
  MADE_DIR=yes
  if [[ -z $DIR && -n $WHILE_PID ]]; then
    DIR=$(mktemp -d "${TMPDIR:-/tmp}/workload-operator-controlplane.XXXXXX")
    return
  fi
  [[ -n $DIR ]] || default_dir
  mkdir -p "$(dirname "$DIR")"
  mkdir "$DIR" 2>/dev/null || MADE_DIR=no
  [[ -d $DIR && -w $DIR ]] || die 1 "cannot write into $DIR; give another --dir"
  must_be_ours
}

# What another user's folder says of processes and files is not to be believed, nor are keys safe in it;
# and a kubeconfig can name a program, which kubectl would run as us.
must_be_ours() { [[ -O $DIR ]] || die 1 "$DIR belongs to another user; give another --dir"; }

# Holds start and stop of one DIR apart. The lock is on the folder itself, so that no lock file
# is left over; the kernel gives it back however we end.
lock_dir() {
  local lock
  { exec {lock}<"$DIR"; } 2>/dev/null || die 1 "$DIR was removed meanwhile; start again"
  if ! flock --nonblock "$lock"; then
    say "waiting for another start or stop in $DIR"
    flock --timeout "$START_SECONDS" "$lock" || die 1 "another start or stop in $DIR does not end"
  fi
  [[ $(stat -Lc %i "$DIR" 2>/dev/null) == "$(stat -Lc %i "/proc/$BASHPID/fd/$lock")" ]] ||
    die 1 "$DIR was stopped and removed meanwhile; start again"
}

# Fails unless everything that the completed start began still runs.
is_up() {
  local file name
  [[ -e $DIR/READY ]] || return 1
  for file in "$DIR"/run/*.pid; do
    name=${file##*/}
    running "$DIR/run" "${name%.pid}" || return 1
  done
}

# Makes DIR ours: empty, or the remains of an earlier control plane, which are cleared away.
claim_dir() {
  if [[ -e $DIR/run/made-dir ]]; then
    say "clearing away what an earlier control plane left in $DIR"
    MADE_DIR=$(<"$DIR/run/made-dir")
    end_all
    remove_files
  elif [[ -n $(ls -A "$DIR") ]]; then
    die 1 "$DIR is not empty and no control plane made it; give another --dir"
  fi
  mkdir "$DIR/run" "$DIR/log" "$DIR/pki" "$DIR/etcd"
  printf '%s\n' "$MADE_DIR" >"$DIR/run/made-dir"
  printf '%s\n' "$WHILE_PID" >"$DIR/run/while-pid"
}

# run/ goes last: while it is there, another stop can complete what this one began.
remove_files() {
  find "$DIR" -mindepth 1 -maxdepth 1 ! -name run -exec rm -rf {} +
  rm -rf "$DIR/run"
}

end_all() {
  # shellcheck disable=SC2086 # one word per component
  end "$DIR/run" ${COMPONENTS#watchdog }
  # The watchdog runs this too: it must not end itself before the files are deleted.
  ! running "$DIR/run" watchdog || [[ $PID == "$BASHPID" ]] || end "$DIR/run" watchdog
}

remove_control_plane() {
  local made
  made=$(<"$DIR/run/made-dir")
  end_all
  remove_files
  [[ $made != yes ]] || rmdir "$DIR"
}

# ---- --while-pid ---------------------------------------------------------------------------

# Fails the start as soon as its process has ended.
still_wanted() {
  [[ -z $WHILE_PID ]] || read_starttime "$WHILE_PID" ||
    die 1 "process $WHILE_PID (--while-pid) has ended, so nothing is started"
}

# The watchdog: waits until process WHILE_PID has ended, then stops the control plane.
watch_process() {
  local never wanted_start
  # A pipe without a writer: `read -t` on it waits without starting a process.
  exec {never}<> <(:)
  if read_starttime "$WHILE_PID"; then
    wanted_start=$STARTTIME
    while read_starttime "$WHILE_PID" && [[ $STARTTIME == "$wanted_start" ]]; do
      # A user has removed our folder, so no other process can find what runs.
      [[ -e $DIR/run/made-dir ]] || break
      remember_pids
      read -r -t 0.25 -u "$never" || true
    done
  fi
  if [[ -e $DIR/run/made-dir ]]; then
    lock_dir
    remove_control_plane
  else
    end_remembered
  fi
}

remember_pids() {
  local file
  REMEMBERED=()
  for file in "$DIR"/run/*.pid; do
    [[ $file == */watchdog.pid ]] || { read -r line <"$file" && REMEMBERED+=("$line"); } 2>/dev/null || true
  done
}

end_remembered() {
  local line pid started boot
  for line in "${REMEMBERED[@]}"; do
    read -r pid started boot <<<"$line"
    if read_starttime "$pid" && [[ $STARTTIME == "$started" && $boot == "$BOOT_ID" ]]; then
      kill -KILL "$pid" 2>/dev/null || true
    fi
  done
}

# ---- credentials ---------------------------------------------------------------------------

require_tools() {
  local tool
  for tool in openssl flock setsid sha256sum awk; do
    type -P "$tool" >/dev/null ||
      die 3 "'$tool' is missing; install it (Debian and Ubuntu: apt-get install openssl util-linux coreutils gawk)"
  done
}

# One CA signs one certificate, which all servers show and which etcd's only client, the API
# server, shows to etcd. Users come with tokens, each component with its own name, so that the
# audit log distinguishes them and RBAC limits them as in a cluster.
make_credentials() {
  local pki=$DIR/pki key=(-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes)
  cat >"$pki/openssl.cnf" <<END
[req]
distinguished_name = name
prompt = no
[name]
CN = workload-operator control plane
[ca]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth, clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:$LOOPBACK, IP:$ADDRESS, IP:$SERVICE_IP, DNS:localhost, DNS:kubernetes, DNS:kubernetes.default, DNS:kubernetes.default.svc, DNS:kubernetes.default.svc.cluster.local
END
  quietly openssl req -x509 -config "$pki/openssl.cnf" -extensions ca "${key[@]}" \
    -subj "/CN=workload-operator control plane CA" -days 365 \
    -keyout "$pki/ca.key" -out "$pki/ca.crt"
  quietly openssl req -new -config "$pki/openssl.cnf" "${key[@]}" -subj "/CN=kube-apiserver" \
    -keyout "$pki/server.key" -out "$pki/server.csr"
  quietly openssl x509 -req -in "$pki/server.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" \
    -CAcreateserial -days 365 -extfile "$pki/openssl.cnf" -extensions server \
    -out "$pki/server.crt"
  # Only real nodes need another certificate.
  [[ -n $REAL_NODES ]] || rm "$pki/ca.key"

  # ServiceAccount tokens are signed with this key.
  quietly openssl ecparam -name prime256v1 -genkey -noout -out "$pki/service-account.key"
  quietly openssl ec -in "$pki/service-account.key" -pubout -out "$pki/service-account.pub"

  : >"$pki/tokens.csv"
  add_user admin system:masters
  add_user system:kube-controller-manager
  add_user system:kube-scheduler
  add_user kwok system:masters
}

quietly() {
  "$@" >"$DIR/log/openssl.log" 2>&1 || { cat "$DIR/log/openssl.log" >&2 && die 1 "failed: $*"; }
}

add_user() { printf '%s,%s,%s,"%s"\n' "$(openssl rand -hex 24)" "$1" "$1" "${2:-}" >>"$DIR/pki/tokens.csv"; }

write_kubeconfig() {
  local user=$1 file=$2 token
  token=$(awk -F, -v user="$user" '$2 == user { print $1 }' "$DIR/pki/tokens.csv")
  cat >"$file" <<END
apiVersion: v1
kind: Config
clusters:
- name: workload-operator-local
  cluster:
    server: https://$ADDRESS:$API_PORT
    certificate-authority-data: $(openssl base64 -A -in "$DIR/pki/ca.crt")
users:
- name: "$user"
  user:
    token: $token
contexts:
- name: workload-operator-local
  context:
    cluster: workload-operator-local
    user: "$user"
current-context: workload-operator-local
END
}

# ---- starting ------------------------------------------------------------------------------

# Sets PORT to one without a listener. Chosen below the range that Linux gives
# to outgoing connections (32768 and up), so that none of those takes it in between.
choose_port() {
  local used tries
  used=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null || true)
  for ((tries = 0; tries < 1000; tries++)); do
    PORT=$((20000 + RANDOM % 12000))
    [[ $used == *:$(printf '%04X' "$PORT")\ * ]] || return 0
  done
  die 1 "no free port between 20000 and 32000"
}

# wait_for NAME WHAT COMMAND...: until COMMAND succeeds. Fails with 1 if daemon NAME ended.
wait_for() {
  local what=$2 status=0
  WAITED_FOR=$1
  shift 2
  until_true "$START_SECONDS" it_runs "$@" || status=$?
  case $status in
    0) ;;
    2) return 1 ;;
    *) fail_with_log "$WAITED_FOR" "waited $START_SECONDS s in vain: $what" ;;
  esac
}

it_runs() { running "$DIR/run" "$WAITED_FOR" && still_wanted; }

fail_with_log() {
  local name=$1
  shift
  say "last lines of $name's log:"
  tail -n 15 "$DIR/log/$name.log" >&2 || true
  die 1 "$*"
}

# start_listening NAME FUNCTION...: calls FUNCTION, which chooses ports, spawns NAME and waits
# for it, again with other ports if another process has taken one meanwhile.
start_listening() {
  local name=$1 attempt
  shift
  for ((attempt = 1; attempt <= PORT_ATTEMPTS; attempt++)); do
    : >"$DIR/log/$name.log"
    ! "$@" || return 0
    grep -q 'address already in use' "$DIR/log/$name.log" ||
      fail_with_log "$name" "$name ended while it started, see the lines above"
    say "a port of $name was taken by another process; trying others"
  done
  die 1 "$name found its ports taken $PORT_ATTEMPTS times"
}

start_etcd() {
  find_binary etcd
  start_listening etcd try_etcd "$FOUND"
}

try_etcd() {
  local etcd=$1 pki=$DIR/pki peer_port
  rm -rf "$DIR/etcd/data"
  choose_port && peer_port=$PORT
  choose_port && ETCD_PORT=$PORT
  printf '%s %s\n' "$ETCD_PORT" "$peer_port" >"$DIR/run/etcd.ports"
  # No fsync: a crash of the machine ends this control plane anyway.
  spawn "$DIR/run" etcd "$DIR/log/etcd.log" "$etcd" \
    --data-dir="$DIR/etcd/data" --unsafe-no-fsync --quota-backend-bytes=8589934592 \
    --listen-client-urls="https://127.0.0.1:$ETCD_PORT" \
    --advertise-client-urls="https://127.0.0.1:$ETCD_PORT" \
    --listen-peer-urls="https://127.0.0.1:$peer_port" \
    --initial-advertise-peer-urls="https://127.0.0.1:$peer_port" \
    --initial-cluster="default=https://127.0.0.1:$peer_port" \
    --cert-file="$pki/server.crt" --key-file="$pki/server.key" \
    --client-cert-auth --trusted-ca-file="$pki/ca.crt" \
    --peer-cert-file="$pki/server.crt" --peer-key-file="$pki/server.key" \
    --peer-client-cert-auth --peer-trusted-ca-file="$pki/ca.crt"
  wait_for etcd "etcd serves" grep -q 'ready to serve client requests' "$DIR/log/etcd.log"
}

start_apiserver() {
  find_binary kube-apiserver
  start_listening kube-apiserver try_apiserver "$FOUND"
}

try_apiserver() {
  local apiserver=$1 pki=$DIR/pki for_nodes=(--authorization-mode=RBAC --endpoint-reconciler-type=none)
  # As on OpenShift: a client needs the right to update an owner's finalizers before it names one.
  local plugins=OwnerReferencesPermissionEnforcement
  # Pods reach the API server through the Service `kubernetes`, whose endpoint may not be loopback.
  [[ -z $REAL_NODES ]] || plugins+=,NodeRestriction
  [[ -z $REAL_NODES ]] || for_nodes=(
    '--authorization-mode=Node,RBAC'
    --endpoint-reconciler-type=lease
    --kubelet-certificate-authority="$pki/ca.crt" --kubelet-preferred-address-types=InternalIP
    --kubelet-client-certificate="$pki/server.crt" --kubelet-client-key="$pki/server.key"
  )
  choose_port && API_PORT=$PORT
  printf '%s\n' "$API_PORT" >"$DIR/run/kube-apiserver.ports"
  write_kubeconfig admin "$DIR/kubeconfig"
  # The audit log is written before a request counts as done (blocking) and never rotated.
  spawn "$DIR/run" kube-apiserver "$DIR/log/kube-apiserver.log" "$apiserver" \
    --bind-address="$ADDRESS" --advertise-address="$ADDRESS" --secure-port="$API_PORT" \
    --cert-dir="$pki" --tls-cert-file="$pki/server.crt" --tls-private-key-file="$pki/server.key" \
    --etcd-servers="https://127.0.0.1:$ETCD_PORT" --etcd-cafile="$pki/ca.crt" \
    --etcd-certfile="$pki/server.crt" --etcd-keyfile="$pki/server.key" \
    --enable-admission-plugins="$plugins" \
    --token-auth-file="$pki/tokens.csv" --client-ca-file="$pki/ca.crt" "${for_nodes[@]}" \
    --service-account-issuer=https://kubernetes.default.svc \
    --service-account-key-file="$pki/service-account.pub" \
    --service-account-signing-key-file="$pki/service-account.key" \
    --service-cluster-ip-range="$SERVICE_RANGE" \
    --allow-privileged=true --event-ttl=1h --delete-collection-workers=8 \
    --max-requests-inflight=3000 --max-mutating-requests-inflight=1500 \
    --audit-policy-file="$HACK_DIR/controlplane/audit-policy.yaml" \
    --audit-log-path="$DIR/audit.log" --audit-log-mode=blocking --audit-log-format=json \
    --audit-log-maxsize=1000000 --audit-log-maxbackup=0 --audit-log-maxage=0
  # Asked over TLS verified with our CA: another server on that port is not mistaken for it.
  wait_for kube-apiserver "/readyz says ok" answers_ok
}

answers_ok() { [[ $(kube get --raw /readyz 2>/dev/null) == ok ]]; }

kube() { "$KUBECTL" --kubeconfig="$DIR/kubeconfig" --cache-dir="$DIR/run/kubectl-cache" --request-timeout=10s "$@"; }

start_the_rest() {
  local pki=$DIR/pki stages user
  for user in kube-controller-manager kube-scheduler; do
    write_kubeconfig "system:$user" "$DIR/run/$user.kubeconfig"
  done
  write_kubeconfig kwok "$DIR/run/kwok.kubeconfig"

  # --secure-port=0: no one requests the health and metrics of these two here.
  # The grace period is long, so that a stalled machine does not evict pods.
  find_binary kube-controller-manager
  spawn "$DIR/run" kube-controller-manager "$DIR/log/kube-controller-manager.log" "$FOUND" \
    --kubeconfig="$DIR/run/kube-controller-manager.kubeconfig" \
    --bind-address=127.0.0.1 --secure-port=0 --leader-elect=false \
    --use-service-account-credentials=true \
    --service-account-private-key-file="$pki/service-account.key" \
    --root-ca-file="$pki/ca.crt" --node-monitor-grace-period=10h \
    --horizontal-pod-autoscaler-sync-period=1s \
    --kube-api-qps=1000 --kube-api-burst=2000 --controllers='*' \
    --concurrent-deployment-syncs=20 --concurrent-replicaset-syncs=20 \
    --concurrent-daemonset-syncs=20 --concurrent-namespace-syncs=20 --concurrent-gc-syncs=20 \
    --concurrent-endpoint-syncs=10 --concurrent-service-endpoint-syncs=10

  find_binary kube-scheduler
  spawn "$DIR/run" kube-scheduler "$DIR/log/kube-scheduler.log" "$FOUND" \
    --kubeconfig="$DIR/run/kube-scheduler.kubeconfig" \
    --bind-address=127.0.0.1 --secure-port=0 --leader-elect=false \
    --kube-api-qps=1000 --kube-api-burst=2000

  if [[ -n $REAL_NODES ]]; then
    wait_for_service_accounts
    return
  fi
  # --node-port=0: else it would listen, on every address, for kubectl logs and exec.
  find_kwok_stages
  stages=$FOUND
  find_binary kwok
  spawn "$DIR/run" kwok "$DIR/log/kwok.log" "$FOUND" \
    --kubeconfig="$DIR/run/kwok.kubeconfig" --config="$stages" --manage-all-nodes=true \
    --cidr="$POD_RANGE" --node-ip=127.0.0.1 --node-port=0 --node-lease-duration-seconds=40

  wait_until_it_works
}

# Proven from end to end, not asked of each part: the controller-manager makes ServiceAccounts
# and CA ConfigMaps, kwok makes nodes Ready, the scheduler binds a pod, kwok runs it.
wait_until_it_works() {
  try_quietly make_nodes || { cat "$DIR/log/wait.log" >&2 && die 1 "making the nodes failed"; }
  wait_for_service_accounts
  wait_for_all "a pod is made" try_quietly make_probe
  wait_for_all "nodes are Ready" try_quietly nodes_ready
  wait_for_all "a pod runs" try_quietly probe_runs
  kube delete pod/controlplane-probe --namespace=kube-system --wait=false --grace-period=0 \
    --force >/dev/null 2>&1 || true # it does no harm where it is
}

wait_for_service_accounts() {
  wait_for_all "ServiceAccounts and CA ConfigMaps are there" try_quietly \
    have_all serviceaccount/default configmap/kube-root-ca.crt
}

# wait_for, but the end of any component ends the wait.
wait_for_all() {
  local what=$1
  shift
  until_true "$START_SECONDS" all_run "$@" || {
    cat "$DIR/log/wait.log" >&2 || true
    die 1 "waited $START_SECONDS s in vain until $what"
  }
}

all_run() {
  local name
  for name in kube-apiserver kube-controller-manager kube-scheduler kwok etcd; do
    [[ $name != kwok || -z $REAL_NODES ]] || continue
    running "$DIR/run" "$name" ||
      fail_with_log "$name" "$name ended while it started, see the lines above"
  done
  still_wanted
}

try_quietly() { "$@" >"$DIR/log/wait.log" 2>&1; }

make_nodes() {
  local template node labels manifest=''
  template=$(<"$HACK_DIR/controlplane/node.yaml")
  for ((node = 0; node < NODES; node++)); do
    case $node in
      0 | 1) labels='logs: "true"' ;;
      2) labels='disk: ssd' ;;
      *) labels='' ;;
    esac
    manifest+=${template//NODE_NAME/node-$node}$'\n---\n'
    manifest=${manifest//NODE_LABELS/$labels}
  done
  kube create --validate=false -f - <<<"$manifest"
}

have_all() {
  kube get "$@" --namespace=default --output=name &&
    kube get "$@" --namespace=kube-system --output=name
}

make_probe() {
  kube create --validate=false -f - <<'END'
apiVersion: v1
kind: Pod
metadata: {name: controlplane-probe, namespace: kube-system}
spec:
  containers: [{name: probe, image: probe}]
END
}

nodes_ready() {
  local ready
  # A line "True " per node: Ready, and without the taint that keeps pods away until then.
  ready=$(kube get nodes --output='jsonpath={range .items[*]}{.status.conditions[?(@.type=="Ready")].status} {.spec.taints[*].key}{"\n"}{end}')
  [[ $(grep -c '^True $' <<<"$ready") == "$NODES" ]]
}

probe_runs() {
  [[ $(kube get pod/controlplane-probe --namespace=kube-system --output='jsonpath={.status.phase}') == Running ]]
}

main "$@"
exit
