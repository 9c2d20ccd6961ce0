#!/usr/bin/env bash
# The bill of materials of the binary: every crate that is compiled into it, as CycloneDX JSON.
#
#   hack/sbom.sh [FILE]     default: target/workload-operator.cdx.json
#
# Needs cargo-cyclonedx: cargo install --locked cargo-cyclonedx
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
file=${1:-target/workload-operator.cdx.json}
type -P cargo-cyclonedx >/dev/null ||
  die 3 "no cargo-cyclonedx: cargo install --locked cargo-cyclonedx"
# The time in it is that of the commit, so that the same commit makes the same file.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export SOURCE_DATE_EPOCH
host=$(rustc -vV | sed -n 's/^host: //p')
# It writes beside Cargo.toml, whatever it is told.
cargo cyclonedx --format json --describe binaries --target "$host"
mkdir -p "$(dirname "$file")"
mv workload-operator_bin.cdx.json "$file"
rm -f ./*.cdx.json
say "$file"
