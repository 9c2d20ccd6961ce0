# shellcheck shell=bash
# The control plane's binaries: found, or built once. (Or others: hack/e2e/binaries.sh sets
# ASSETS_NAME and RECIPES to its own before it sources this.)
#
# - A binary is looked for in $KUBEBUILDER_ASSETS (if set; its kube-apiserver and etcd must be
#   there), then in the cache folder; kubectl also on PATH. What is found nowhere is built.
# - The cache folder's name is a hash of what pins the versions (go.mod, go.sum), so another
#   version never meets old binaries, and a folder is never rewritten.
# - Kubernetes' servers exist in several versions, one module kubernetes-VERSION and one cache folder
#   each. Everything else (kubectl, kubelet, etcd, kwok) is the same for all and comes with the newest.
# - A binary appears under its name only when it is complete: killed builds leave nothing that
#   looks finished. Two concurrent builds do not collide; the second waits for the first.
#
# Needs: HACK_DIR, say.sh.

ASSETS_NAME=${ASSETS_NAME:-controlplane} # of the folder with the modules, and of the cache folder
readonly GO_MODULES="$HACK_DIR/$ASSETS_NAME"
# shellcheck source=hack/lib/go.sh
source "$HACK_DIR/lib/go.sh"

# One row per binary: name, module below GO_MODULES, package.
[[ -n ${RECIPES:-} ]] || RECIPES="
kube-apiserver          servers    k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager servers    k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler          servers    k8s.io/kubernetes/cmd/kube-scheduler
kubectl                 kubernetes k8s.io/kubernetes/cmd/kubectl
kubelet                 kubernetes k8s.io/kubernetes/cmd/kubelet
kube-proxy              kubernetes k8s.io/kubernetes/cmd/kube-proxy
etcd                    kubernetes go.etcd.io/etcd/server/v3
kwok                    kubernetes sigs.k8s.io/kwok/cmd/kwok
"

# Files of kwok's module that make its nodes and pods Ready; without them it does nothing.
readonly KWOK_STAGES="node/fast node/heartbeat-with-lease pod/fast"

# The versions of Kubernetes that there are modules of, the oldest first.
kubernetes_versions() {
  local module
  for module in "$GO_MODULES"/kubernetes-*/; do
    [[ -d $module ]] || continue # the pattern itself, where nothing matches
    module=${module%/}
    printf '%s\n' "${module##*/kubernetes-}"
  done | sort -V
}

# set_assets_dir [VERSION]: of Kubernetes' servers; the newest by default.
set_assets_dir() {
  local versions newest modules
  cache_folder "$ASSETS_NAME"
  mapfile -t versions < <(kubernetes_versions)
  if ((${#versions[@]} == 0)); then # one version of everything
    mapfile -t modules < <(cd "$GO_MODULES" && printf '%s\n' */go.mod)
    KUBERNETES=${modules[0]%/go.mod} SERVERS=${modules[0]%/go.mod}
    ASSETS_DIR=$CACHE_FOLDER/$(hash_of_pins "${modules[@]%/go.mod}")
    SERVERS_DIR=$ASSETS_DIR
    return
  fi
  newest=${versions[-1]}
  VERSION=${1:-$newest}
  [[ " ${versions[*]} " == *" $VERSION "* ]] ||
    die 2 "there is no Kubernetes $VERSION here, only ${versions[*]}"
  KUBERNETES=kubernetes-$newest SERVERS=kubernetes-$VERSION
  ASSETS_DIR=$CACHE_FOLDER/$(hash_of_pins "$KUBERNETES")
  SERVERS_DIR=$ASSETS_DIR
  [[ $VERSION == "$newest" ]] || SERVERS_DIR=$CACHE_FOLDER/$(hash_of_pins "$SERVERS")
}

hash_of_pins() {
  local hash
  hash=$(cd "$GO_MODULES" && { uname -sm; cat "${@/%//go.mod}" "${@/%//go.sum}"; } | sha256sum)
  printf '%s' "${hash:0:12}"
}

# Sets MODULE, PACKAGE and FOLDER, where it is when it is built, of binary $1.
look_up() {
  read -r MODULE PACKAGE < <(awk -v name="$1" '$1 == name { print $2, $3 }' <<<"$RECIPES") || true
  FOLDER=$ASSETS_DIR
  case $MODULE in
    servers) MODULE=$SERVERS FOLDER=$SERVERS_DIR ;;
    kubernetes) MODULE=$KUBERNETES ;;
  esac
}

# Sets FOUND to the path of binary $1; fails if it has to be built.
find_binary() {
  local name=$1 MODULE PACKAGE FOLDER
  look_up "$name"
  if [[ -n ${KUBEBUILDER_ASSETS:-} && $FOLDER == "$ASSETS_DIR" ]]; then
    FOUND=$KUBEBUILDER_ASSETS/$name
    [[ ! -x $FOUND ]] || return 0
    if [[ $name == kube-apiserver || $name == etcd ]]; then
      die 3 "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS holds no $name; point it to the folder that \`setup-envtest use -p path\` prints, or unset it"
    fi
  fi
  FOUND=$FOLDER/$name
  [[ ! -x $FOUND ]] || return 0
  if [[ $name == kubectl ]] && FOUND=$(type -P kubectl); then
    "$FOUND" version --client >/dev/null 2>&1 && return 0
  fi
  FOUND=
  return 1
}

# Sets FOUND to the file of kwok's stages: next to the binaries of a folder like ours.
find_kwok_stages() {
  FOUND=${KUBEBUILDER_ASSETS:-$ASSETS_DIR}/kwok-stages.yaml
  [[ -s $FOUND ]] || FOUND=$ASSETS_DIR/kwok-stages.yaml
  [[ -s $FOUND ]]
}

# require_binaries NAME...: builds those that are missing.
require_binaries() {
  local name missing=()
  for name in "$@"; do
    find_binary "$name" || missing+=("$name")
  done
  if [[ " $* " == *" kwok "* ]] && ! find_kwok_stages; then missing+=(kwok-stages); fi
  ((${#missing[@]} == 0)) || build_binaries "${missing[@]}"
}

build_binaries() {
  local name lock lock_servers='' started version MODULE PACKAGE FOLDER
  require_go "$@"
  mkdir -p "$ASSETS_DIR" "$SERVERS_DIR"
  # In this order everywhere, so that no two builds wait for each other.
  exec {lock}<"$ASSETS_DIR"
  wait_for_lock "$lock"
  if [[ $SERVERS_DIR != "$ASSETS_DIR" ]]; then
    exec {lock_servers}<"$SERVERS_DIR"
    wait_for_lock "$lock_servers"
  fi
  rm -f "$ASSETS_DIR"/.building.* "$SERVERS_DIR"/.building.*

  started=$(now_us)
  for name in "$@"; do
    if [[ $name == kwok-stages ]]; then
      copy_kwok_stages
      continue
    fi
    ! find_binary "$name" || continue # the run we waited for has built it
    look_up "$name"
    version=$(pinned_version "$GO_MODULES/$MODULE/go.mod" "$PACKAGE")
    build_one "$name" "$version"
  done
  say "built in $(since "$started") s: $SERVERS_DIR"
  exec {lock}<&-
  [[ -z $lock_servers ]] || exec {lock_servers}<&-
}

wait_for_lock() {
  flock --nonblock "$1" || { say "another run builds in the same folder; waiting for it" && flock "$1"; }
}

# The version in the go.mod file $1 of the module that package $2 is in.
pinned_version() {
  awk -v package="$2/" '{ sub(/^require /, "") }
    $2 ~ /^v[0-9]/ && index(package, $1 "/") == 1 { print $2; exit }' "$1"
}

build_one() {
  local name=$1 version=$2
  local temporary=$FOLDER/.building.$1.$$ log=$FOLDER/.building.$1.$$.log
  local started flags="-s -w" minor
  if [[ $PACKAGE == k8s.io/kubernetes/* ]]; then
    # Without a version the servers call themselves v0.0.0 and refuse each other.
    minor=${version#v1.}
    flags+=" -X k8s.io/component-base/version.gitVersion=$version"
    flags+=" -X k8s.io/component-base/version.gitMajor=1"
    flags+=" -X k8s.io/component-base/version.gitMinor=${minor%%.*}"
  fi

  started=$(now_us)
  [[ -t 2 ]] || say "building $name $version ..."
  # Debug information that the linker drops (-s -w) is not generated: a sixth of the time.
  in_module "$GO_MODULES/$MODULE" build -trimpath -gcflags=all=-dwarf=false -ldflags "$flags" -o "$temporary" "$PACKAGE" \
    >"$log" 2>&1 &
  BUILD_PID=$!
  while kill -0 "$BUILD_PID" 2>/dev/null; do
    [[ ! -t 2 ]] || printf '\r  building %-32s %4d s ' "$name $version" \
      $((($(now_us) - started) / 1000000)) >&2
    sleep 0.5
  done
  if ! wait "$BUILD_PID"; then
    BUILD_PID=
    [[ ! -t 2 ]] || say ""
    grep -v '^go: downloading' "$log" | tail -n 15 >&2 || true
    # A machine without a way to the sources lacks something, as one without Go does.
    if grep -qE 'Get "https?://|dial tcp|module lookup disabled' "$log"; then
      rm -f "$temporary" "$log"
      die 3 "the sources of $name cannot be fetched, see the lines above (GOPROXY=$(go env GOPROXY))"
    fi
    rm -f "$temporary" "$log"
    die 1 "building $name failed, see the lines above"
  fi
  BUILD_PID=
  rm -f "$log"
  mv "$temporary" "$FOLDER/$name"
  [[ ! -t 2 ]] || printf '\r' >&2
  printf '  built    %-32s %4d s\n' "$name $version" \
    $((($(now_us) - started) / 1000000)) >&2
}

copy_kwok_stages() {
  local source stage file temporary=$ASSETS_DIR/.building.kwok-stages.$$
  source=$(in_module "$GO_MODULES/$KUBERNETES" list -f '{{.Module.Dir}}' sigs.k8s.io/kwok/cmd/kwok)
  for stage in $KWOK_STAGES; do
    for file in "$source/kustomize/stage/$stage"/*.yaml; do
      [[ ${file##*/} != kustomization.yaml ]] || continue
      printf -- '---\n'
      cat "$file"
    done
  done >"$temporary"
  mv "$temporary" "$ASSETS_DIR/kwok-stages.yaml"
}

require_go() {
  local names="$*"
  names=${names% kwok-stages}
  local otherwise="or set KUBEBUILDER_ASSETS to a folder that has it, or use a cluster you have (--kubeconfig)"
  type -P go >/dev/null ||
    die 3 "no Go to build $names: install Go >= 1.$GO_NEEDED from https://go.dev/dl, $otherwise"
  is_new_enough "$GO_MODULES/$KUBERNETES" ||
    die 3 "Go >= 1.$GO_NEEDED is needed to build $names, this is $(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null || go version): install it from https://go.dev/dl, $otherwise"
}
