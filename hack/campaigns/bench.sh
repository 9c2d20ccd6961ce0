#!/usr/bin/env bash
# Our Foo controller beside client-go's, controller-runtime's and kube-runtime's: the same work,
# the same control plane (API server and etcd only), one after the other.
#
#   hack/campaigns/bench.sh                  everything, once it is built: about 25 minutes on 2 cores;
#                                  writes the table and the plots of docs/PERFORMANCE.md
#   hack/campaigns/bench.sh --quick          small numbers, one run, under 5 minutes; prints the table
#   hack/campaigns/bench.sh build            builds the peers and stops
#
#   --only PARTS        some of: converge rate coldstart queue (commas)
#   --contenders NAMES  some of: ours client-go controller-runtime kube-runtime (commas)
#   --runs N            runs of each row of the table (default 3; fewer of the slowest, if those would
#                       end later than 19 minutes after the start; with --quick 1)
#   --workers N         workers of each contender (default 8)
#   --report-only       measures nothing, writes the table from the last results
#
# With --only or --contenders the table is only printed: the document is of one run. The other results of
# the last run are kept; those with another number of workers are not. Results are in
# target/bench/results.json (--quick: target/bench/quick/results.json). With OURS set they are
# below target/bench/ours-NAME, and the table is only printed.
#
# Needs cargo, Go 1.26 and what hack/controlplane.sh needs. The peers are built once, into
# ${XDG_CACHE_HOME:-~/.cache}/workload-operator/bench. Do nothing else on the machine meanwhile.
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
readonly PEERS=$ROOT/benches/peers
readonly OUT=$ROOT/target/bench
readonly CONTROLPLANE=${CONTROLPLANE:-$HACK_DIR/controlplane.sh}
OURS=${OURS:-} OUR_QUEUE=
readonly GIVEN=$OURS # a program of the user's: its numbers are not those of the document

main() {
  local command=run quick='' only='' is_part='' report_only='' rest=()
  while (($# > 0)); do
    case $1 in
      build) command=build ;;
      help | -h | --help) usage && return ;;
      --quick) quick=yes ;;
      --report-only) report_only=yes rest+=(-report-only) ;;
      --only | --contenders | --runs | --workers)
        [[ -n ${2:-} ]] || die 2 "$1 needs a value"
        rest+=("-${1#--}" "$2")
        [[ $1 != --only ]] || only=$2
        [[ $1 != --only && $1 != --contenders ]] || is_part=yes
        shift
        ;;
      *) die 2 "unknown option '$1'; see hack/campaigns/bench.sh --help" ;;
    esac
    shift
  done
  [[ -r /proc/self/stat ]] || die 3 "needs Linux: CPU time and memory are read from /proc"
  find_bins
  if [[ -n $report_only ]]; then
    [[ -e $BINS/measure ]] || { mkdir -p "$BINS" && go_build measure ./measure; }
  else
    build_peers
    [[ $command == run ]] || return 0
    build_ours "$only"
    [[ $only == queue ]] || "$CONTROLPLANE" build >/dev/null
  fi
  measure "$quick" "$is_part" "${rest[@]}"
}

# ---- building ------------------------------------------------------------------------------

# Sets BINS to the folder of the built peers, below CACHE_FOLDER.
find_bins() {
  local key tool
  cache_folder bench
  for tool in go cargo flock sha256sum; do
    type -P "$tool" >/dev/null || die 3 "'$tool' is missing"
  done
  # Everything that decides what the programs are: sources, locked versions, compilers.
  key=$(cd "$PEERS" && { uname -sm; go env GOVERSION; cargo --version; find . -type f \
    ! -path '*/target/*' ! -name '*.md' -print0 | sort -z | xargs -0 sha256sum; } | sha256sum)
  BINS=$CACHE_FOLDER/${key:0:12}
}

build_peers() {
  [[ ! -e $BINS/complete ]] || return 0
  say "building the peers; the first time this takes several minutes"
  mkdir -p "$BINS"
  exec {lock}<"$BINS"
  flock "$lock"
  go_build client-go ./client-go
  go_build controller-runtime ./controller-runtime
  go_build measure ./measure
  say "  queues.test"
  in_peers test -c -o "$BINS/queues.test" ./queues
  say "  kube-runtime"
  (cd "$PEERS/kube-runtime" && cargo build --quiet --release --locked \
    --target-dir "$CACHE_FOLDER/kube-runtime-target")
  install "$CACHE_FOLDER/kube-runtime-target/release/kube-runtime-peer" "$BINS/kube-runtime"
  : >"$BINS/complete"
  exec {lock}<&-
}

go_build() {
  say "  $1"
  in_peers build -trimpath -ldflags '-s -w' -o "$BINS/$1" "$2"
}

in_peers() { (in_module "$PEERS" "$@"); }

# Sets OURS and, if its part is wanted, OUR_QUEUE.
build_ours() {
  if [[ -z $OURS && $1 != queue ]]; then
    say "building crates/machinery/examples/foo.rs, in a package as the template makes it"
    local package=$OUT/foo-operator
    rm -rf "$package"
    mkdir -p "$OUT" # The first run may be one of parts.
    "$ROOT/hack/new-controller.sh" "$package" Foo samplecontroller.k8s.io >/dev/null
    mkdir "$package/src/bin" && cp "$ROOT/crates/machinery/examples/foo.rs" "$package/src/bin/"
    cargo build --quiet --locked --release --target-dir "$CARGO_TARGET_DIR" \
      --manifest-path "$package/Cargo.toml" --bin foo
    OURS=$CARGO_TARGET_DIR/release/foo
  fi
  [[ ,${1:-queue}, == *,queue,* ]] || return 0
  say "building benches/workqueue.rs"
  OUR_QUEUE=$(cd "$ROOT" && cargo bench --quiet --locked --no-run --bench workqueue --message-format=json |
    sed -n 's/.*"name":"workqueue".*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)
}

# ---- measuring -----------------------------------------------------------------------------

measure() {
  local quick=$1 is_part=$2 out=$OUT document=$ROOT/docs/PERFORMANCE.md
  shift 2
  [[ -z $is_part ]] || document=
  if [[ -n $GIVEN ]]; then
    out=$OUT/ours-$(basename "$GIVEN") document=
  fi
  if [[ -n $quick ]]; then
    out+=/quick document=
    set -- -quick "$@"
  fi
  mkdir -p "$out"
  exec {measuring}<"$OUT"
  flock --nonblock "$measuring" || die 1 "another hack/campaigns/bench.sh is measuring; two at once would measure each other"
  "$BINS/measure" -bin "$BINS" -ours "$OURS" -our-queue "$OUR_QUEUE" -controlplane "$CONTROLPLANE" \
    -crd "$ROOT/artifacts/examples/foo-crd.yaml" -out "$out" -document "$document" \
    -revision "$(revision)" "$@"
}

revision() {
  local dirty=
  if [[ -n $GIVEN ]]; then
    printf 'program %s' "$(basename "$GIVEN")"
    return
  fi
  git -C "$ROOT" diff --quiet HEAD -- src crates examples Cargo.toml Cargo.lock 2>/dev/null || dirty=" with changes"
  printf 'revision %s%s' "$(git -C "$ROOT" rev-parse --short=9 HEAD 2>/dev/null || echo unknown)" "$dirty"
}

main "$@"
exit
