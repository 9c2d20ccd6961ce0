#!/usr/bin/env bash
# Fuzzes with cargo-fuzz (libFuzzer), guided by coverage, on a nightly toolchain.
#
#   hack/campaigns/fuzz.sh                      each target for a minute
#   hack/campaigns/fuzz.sh TARGET [SECONDS]     one target (see fuzz/src/lib.rs) for so long, default 60
#
# Needs a C++ compiler and, once: rustup toolchain install nightly. cargo-fuzz is built once, below
# ${XDG_CACHE_HOME:-~/.cache}. What it learns stays in fuzz/corpus, inputs that break something in fuzz/artifacts, neither in git. An input
# that broke something goes into fuzz/seeds/TARGET, and `cargo test --test fuzz` has it from then on.
# Exit status: 0 nothing found, 1 something found or failed, 3 install something.
set -euo pipefail
HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
case ${1:-} in help | -h | --help) usage && exit ;; esac
cd "$HACK_DIR/.."

readonly VERSION=0.13.2
# No one else uses a machine of CI.
[[ -z ${CI:-} ]] || rustup toolchain install nightly --profile minimal >&2
cargo +nightly --version >/dev/null 2>&1 || die 3 "no nightly toolchain: rustup toolchain install nightly"
cache_folder fuzz
ROOT=$CACHE_FOLDER/$VERSION
if [[ ! -x $ROOT/bin/cargo-fuzz ]]; then
  say "building cargo-fuzz $VERSION (once; a minute) ..."
  cargo install --quiet --locked --root "$ROOT" cargo-fuzz --version "$VERSION" >&2
fi
# cargo-fuzz has no --locked: where the lock file is not up to date, this fails first.
cargo fetch --quiet --locked --target "$(rustc -vV | sed -n 's/^host: //p')"
seconds=${2:-60}
for target in ${1:-$(sed -n 's/^    ("\(.*\)", .*),$/\1/p' fuzz/src/lib.rs)}; do
  echo "== $target, $seconds s"
  mkdir -p "fuzz/corpus/$target"
  TARGET=$target PATH=$ROOT/bin:$PATH cargo +nightly fuzz run target "fuzz/corpus/$target" "fuzz/seeds/$target" -- \
    -max_total_time="$seconds" -max_len=8192 -timeout=20 -rss_limit_mb=2048
done
