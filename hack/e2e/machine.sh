# shellcheck shell=bash
# What hack/e2e.sh needs from the machine, and the proof that it leaves it as it was.
#
# Needs: DIR, CGROUP, say.sh.

# shellcheck source=hack/lib/packages.sh
source hack/lib/packages.sh
readonly DEBIAN_PACKAGES="buildah containerd runc containernetworking-plugins nftables memcached nginx-light busybox-static prometheus-node-exporter"
readonly NEEDED_MEMORY=3000 NEEDED_DISK=6000 # MiB
# By what each package is recognised, in the same order.
readonly PACKAGE_FILES="buildah containerd runc /usr/lib/cni/bridge nft memcached nginx /bin/busybox prometheus-node-exporter"

require_machine() {
  local tool missing=()
  [[ $(uname -s) == Linux ]] || die 3 "needs Linux: a kubelet and its pods run here"
  ((EUID == 0)) || die 3 "needs root, for namespaces, mounts and cgroups: sudo env PATH=\"\$PATH\" HOME=\"\$HOME\" hack/e2e.sh"
  for tool in unshare nsenter setpriv ip openssl flock awk ldd gcc go cargo mount find; do
    command -v "$tool" >/dev/null || missing+=("$tool")
  done
  ((${#missing[@]} == 0)) ||
    die 3 "missing: ${missing[*]} (Debian: apt-get install util-linux iproute2 openssl gawk gcc libc6-dev; https://go.dev/dl; https://rustup.rs)"
  unshare --mount --net --pid --fork true 2>/dev/null ||
    die 3 "may not make namespaces: needs CAP_SYS_ADMIN (in a container: privileged)"
  # Where processes may not be moved into a cgroup of this script, no pod can run.
  can_make_cgroups || die 3 "may not make cgroups in /sys/fs/cgroup: it is absent or read-only"
  require_room
  require_packages
  require_kernel
}

# Of a build of the image, and of two nodes.
require_room() {
  local memory disk
  memory=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo)
  ((memory >= NEEDED_MEMORY)) || die 3 "$memory MiB of memory are free, $NEEDED_MEMORY are needed"
  disk=$(df --output=avail --block-size=1M "$DIR" | tail -n 1)
  ((disk >= NEEDED_DISK)) || die 3 "$((disk)) MiB are free in ${DIR%/*}, $NEEDED_DISK are needed: set TMPDIR"
}

# What pods are made of, tried in namespaces that end with the trial.
require_kernel() {
  local trial="$DIR/trial" why
  mkdir -p "$trial"/{memory,lower,upper,work,all}
  # shellcheck disable=SC2016 # the inner shell's
  why=$(unshare --mount --net --pid --fork --kill-child "$BASH" -c '
    mount -t tmpfs tmpfs "$1/memory" || exit 1
    mount -t overlay overlay -o "lowerdir=$1/lower,upperdir=$1/upper,workdir=$1/work" "$1/all" || exit 1
    ip link add hub type bridge && ip link add one type veth peer name other || exit 1
    nft add table inet trial || exit 1
    echo 1 >/proc/sys/net/ipv4/ip_forward' trial "$trial" 2>&1) ||
    die 3 "cannot make what pods need (overlayfs in ${DIR%/*}, bridge, veth, nftables, ip_forward): ${why//$'\n'/; }"
  rm -rf "$trial"
}

can_make_cgroups() {
  local hierarchy=/sys/fs/cgroup
  [[ -e $hierarchy/cgroup.controllers ]] || hierarchy=/sys/fs/cgroup/memory
  mkdir "$hierarchy/$CGROUP" 2>/dev/null && rmdir "$hierarchy/$CGROUP"
}

# Installs the Debian packages that are missing. With if-there, it installs nothing.
require_packages() {
  local missing
  missing=$(missing_packages)
  [[ -n $missing ]] || return 0
  [[ -z ${REASON_FILE:-} ]] || die 3 "hack/ci-tools.sh installs what is missing: Debian's packages $missing"
  command -v apt-get >/dev/null ||
    die 3 "missing, and no apt-get to install them: what Debian has in the packages $missing"
  say "installing $missing, without their services"
  # shellcheck disable=SC2086 # one word per package
  install_packages $missing >"$DIR/log/packages.log" 2>&1 ||
    die 3 "apt-get install --no-install-recommends $missing failed: $(tail -n 3 "$DIR/log/packages.log")"
}

missing_packages() {
  local package file files
  read -r -a files <<<"$PACKAGE_FILES"
  for package in $DEBIAN_PACKAGES; do
    file=${files[0]}
    files=("${files[@]:1}")
    type -P "$file" >/dev/null || printf '%s ' "$package" # a program: `buildah` is a function, too
  done
}

# What a run could leave behind, one thing a line.
snapshot() {
  local setting
  awk '{ print "mount", $5, $9, $10 }' /proc/self/mountinfo
  ip -oneline link | awk '{ print "interface", $2 }'
  ip route | sed 's/^/route /'
  nft list ruleset | sed 's/^/nft /'
  find /run/netns /run/containerd /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers \
    -mindepth 1 -maxdepth 2 2>/dev/null | sed 's/^/file /' || true # not all of them are there
  for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops net/ipv4/ip_forward; do
    printf 'setting %s=%s\n' "$setting" "$(<"/proc/sys/$setting")"
  done
  find /sys/fs/cgroup -type d -name "$CGROUP*" | sed 's/^/cgroup /'
  our_processes | sed 's/^/process /'
}

# Processes that have this run's mark in their environment (see run_inside).
our_processes() {
  local environ
  grep -lszF "E2E_MARK=$CGROUP" /proc/[0-9]*/environ | while read -r environ; do
    tr '\0' ' ' <"${environ%environ}cmdline"
    echo
  done 2>/dev/null || true
}

# The namespaces end with their first process; what lies outside of them is removed here.
remove_cluster() {
  local deadline=$((SECONDS + 30)) left
  if [[ -n ${HOLDER:-} ]]; then
    kill -KILL "$HOLDER" 2>/dev/null || true
    wait "$HOLDER" 2>/dev/null || true
  fi
  until left=$(find /sys/fs/cgroup -depth -type d -path "*/$CGROUP*") && [[ -z $left ]]; do
    xargs -r rmdir <<<"$left" 2>/dev/null || true
    ((SECONDS < deadline)) || break
    sleep 0.1
  done
}

# A run that was killed took its processes along, but left its folder and its empty cgroups. A run
# holds a lock on its folder. (A folder of this minute may not have its lock yet.)
remove_remains() {
  local folder lock
  find "${TMPDIR:-/tmp}" -mindepth 1 -maxdepth 1 -type d -user root -name 'workload-operator-e2e.??????' -mmin +1 |
    while read -r folder; do
      exec {lock}<"$folder"
      if flock --nonblock "$lock"; then
        say "removing what an earlier run left when it was killed: $folder"
        CGROUP=${folder##*/} remove_cluster
        remove_folder "$folder"
      fi
      exec {lock}<&-
    done
}

# Compares with the snapshot in $DIR/before. Others may use this machine, too: with if-there, only
# what has this run's name is surely its own.
nothing_is_left() {
  local left deadline=$((SECONDS + 30))
  until left=$(left_over) && [[ -z $left ]]; do
    ((SECONDS < deadline)) || break
    sleep 0.5
  done
  [[ -n $left ]] || return 0
  if [[ -n ${REASON_FILE:-} && $left != *"$CGROUP"* && $left != *process\ * ]]; then
    say "NOT CHECKED: whether this is left of this run, or another process made it meanwhile: $left"
  else
    die 1 "left on the machine: $left"
  fi
}

left_over() {
  snapshot >"$DIR/after"
  sort "$DIR/before" | comm -13 - <(sort "$DIR/after")
}

# Nothing is removed through a mount that is still there.
remove_folder() {
  if grep -q " $1/" /proc/self/mountinfo; then
    say "not removed, for something is still mounted in it: $1"
  else
    rm -rf "$1"
  fi
}
