#!/usr/bin/env bash
# The operator as one static binary that does not depend on where or when it was built: from the
# same sources by the same toolchain it is to be the same, bit for bit. The Dockerfile uses it, and
# hack/campaigns/reproducible.sh compares two releases.
#
#   hack/build-static.sh FILE
#
# Environment: PROFILE (default release), CARGO_TARGET_DIR, SOURCE_DATE_EPOCH (default 0), REVISION (for the metric
# build_info; default: git's, if this is a checkout).
set -euo pipefail
cd "$(dirname "$0")/.."
file=${1:?usage: hack/build-static.sh FILE}
profile=${PROFILE:-release}
host=$(rustc -vV | sed -n 's/^host: //p')
cargo_home=${CARGO_HOME:-$HOME/.cargo}

# No path of this machine in panics' messages, debug information or C's __FILE__.
# Each path can have a space: cargo separates these flags by U+001F, and the crate `cc` reads quotes.
printf -v CARGO_ENCODED_RUSTFLAGS '%s\x1f%s\x1f%s' -Ctarget-feature=+crt-static \
  "--remap-path-prefix=$PWD=/source" "--remap-path-prefix=$cargo_home=/cargo"
# shellcheck disable=SC2089,SC2090 # for the crate
export CFLAGS="'-ffile-prefix-map=$PWD=/source' '-ffile-prefix-map=$cargo_home=/cargo'"
export CARGO_ENCODED_RUSTFLAGS CC_SHELL_ESCAPED_FLAGS=1
# mimalloc says when it was compiled (__DATE__, __TIME__); compilers take that from here.
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0}
export CARGO_INCREMENTAL=0
export REVISION=${REVISION:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}

# Naming the target keeps crt-static away from proc macros and build scripts, which cannot be
# static.
cargo build --locked --profile "$profile" --bin workload-operator --target "$host"
[[ $profile != dev ]] || profile=debug
built=${CARGO_TARGET_DIR:-target}/$host/$profile/workload-operator
# A binary that still asks for a loader would not start in an empty image.
headers=$(readelf --program-headers "$built")
if [[ $headers == *INTERP* ]]; then
  echo "build-static.sh: not static: this toolchain has no static C library" >&2
  exit 1
fi
mkdir -p "$(dirname "$file")"
cp "$built" "$file"
