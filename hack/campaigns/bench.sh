#!/usr/bin/env bash
# Our Foo controller compared with client-go's, controller-runtime's and kube-runtime's: the same work,
# the same control plane (API server and etcd only), one after the other. And what single requests cost.
#
#   hack/campaigns/bench.sh            everything, once it is built: about 40 minutes on 2 cores;
#                                      writes the tables and the plots of docs/PERFORMANCE.md
#   hack/campaigns/bench.sh --quick    small numbers, one run, under 5 minutes; prints the tables
#   hack/campaigns/bench.sh build      builds everything and stops
#
#   --only PARTS        some of: requests converge rate status queue coldstart (commas)
#   --contenders NAMES  a list of: client-go controller-runtime kube-runtime ours (commas)
#   --runs N            runs of each row of the table (default 5; with --quick 1)
#   --growth N          Foos of the largest cold start (default 100000; with --quick 1000)
#
# With any option, or with OURS set, the tables are only printed: the document is of one whole run.
# Results are in target/bench. Do nothing else on the machine meanwhile. Needs cargo, Go 1.26 and what
# hack/controlplane.sh needs. The first build takes several minutes.
#
# Environment: OURS (program to measure as `ours`; default: crates/machinery/examples/foo.rs is built),
# CONTROLPLANE (the script that starts one), CARGO_TARGET_DIR, XDG_CACHE_HOME, GOFLAGS, GOPROXY.
# Exit status: 0 done, 1 failed, 2 wrong usage, 3 install or set something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck source=hack/lib/go.sh
source "$HACK_DIR/lib/go.sh"
readonly ROOT=${HACK_DIR%/*}
CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-$ROOT/target}") # cargo is called in another folder
readonly PEERS=$ROOT/benches/peers OUT=$ROOT/target/bench BINS=$ROOT/target/bench/bin
CONTROLPLANE=$(realpath "${CONTROLPLANE:-$HACK_DIR/controlplane.sh}")
OURS=${OURS:+$(realpath "$OURS")} OUR_QUEUE=
REVISION="revision $(git -C "$ROOT" describe --always --dirty --abbrev=9 --exclude '*' 2>/dev/null || echo unknown)"
[[ -z $OURS ]] || REVISION="program ${OURS##*/}"

main() {
  local command=run tool options=() document=$ROOT/docs/PERFORMANCE.md
  local only=requests,converge,rate,status,queue,coldstart contenders=ours,client-go,controller-runtime,kube-runtime
  [[ -z $OURS ]] || document=
  while (($# > 0)); do
    case $1 in
      build) command=build ;;
      help | -h | --help) usage && return ;;
      --quick) options+=(-quick) document= ;;
      --only | --contenders | --runs | --growth)
        [[ -n ${2:-} ]] || die 2 "$1 needs a value"
        options+=("-${1#--}" "$2") document=
        [[ $1 != --only ]] || only=$2
        [[ $1 != --contenders ]] || contenders=$2
        shift
        ;;
      *) die 2 "unknown option '$1'; see hack/campaigns/bench.sh --help" ;;
    esac
    shift
  done
  [[ -r /proc/self/stat ]] || die 3 "needs Linux: CPU time and memory are read from /proc"
  for tool in go cargo flock; do
    type -P "$tool" >/dev/null || die 3 "'$tool' is missing"
  done
  [[ $only =~ converge|rate|coldstart ]] || contenders=
  build "$only,$contenders"
  [[ $command != run ]] || measure "${options[@]}" -document "$document"
}

measure() {
  "$CONTROLPLANE" build >/dev/null
  exec {measuring}<"$OUT"
  flock --nonblock "$measuring" || die 1 "another hack/campaigns/bench.sh is measuring; two would measure each other"
  cd "$ROOT"
  "$BINS/measure" -ours "$OURS" -our-queue "$OUR_QUEUE" -controlplane "$CONTROLPLANE" -taken-on "$(machine) ($REVISION)" "$@"
}

# Builds what the parts and contenders need: go and cargo know what is up to date.
build() {
  local wanted=,$1, program
  mkdir -p "$BINS"
  for program in measure client-go controller-runtime; do
    [[ ,measure$wanted != *,$program,* ]] ||
      (in_module "$PEERS" build -trimpath -ldflags '-s -w' -o "$BINS/$program" "./$program")
  done
  if [[ $wanted == *,kube-runtime,* ]]; then
    cache_folder bench
    (cd "$PEERS/kube-runtime" && cargo build --quiet --release --locked --target-dir "$CACHE_FOLDER")
    install "$CACHE_FOLDER/release/kube-runtime-peer" "$BINS/kube-runtime"
  fi
  [[ $wanted != *,ours,* || -n $OURS ]] || build_ours
  [[ $wanted == *,queue,* ]] || return 0
  (in_module "$PEERS" test -c -o "$BINS/queues.test" ./queues)
  OUR_QUEUE=$(cd "$ROOT" && cargo bench --quiet --locked --no-run --bench workqueue --message-format=json |
    sed -n 's/.*"name":"workqueue".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
}

build_ours() {
  say "building crates/machinery/examples/foo.rs, in a package as the template makes it"
  local package=$OUT/foo-operator
  rm -rf "$package"
  "$ROOT/hack/new-controller.sh" "$package" Foo samplecontroller.k8s.io >/dev/null
  mkdir "$package/src/bin" && cp "$ROOT/crates/machinery/examples/foo.rs" "$package/src/bin/"
  cargo build --quiet --locked --release --target-dir "$CARGO_TARGET_DIR" --manifest-path "$package/Cargo.toml" --bin foo
  OURS=$CARGO_TARGET_DIR/release/foo
}

machine() {
  awk -F ': ' -v cores="$(nproc)" '/^model name/ { model = $2 } /^MemTotal/ { memory = $2 / 1048576 }
    END { printf "%d × %s, %.0f GiB, Linux ", cores, model, memory }' /proc/cpuinfo /proc/meminfo
  printf '%s, %s' "$(uname -r)" "$(go env GOVERSION)"
}

main "$@"
exit
