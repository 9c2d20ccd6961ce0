#!/usr/bin/env bash
# The bundle for the Operator Lifecycle Manager, made of artifacts/: the ClusterServiceVersion, the CRDs, and
# what OLM installs in addition, one object per file and without a namespace, which OLM chooses.
#
#   hack/bundle.sh FOLDER [IMAGE]    write it into FOLDER, which may exist: its manifests/ is replaced. IMAGE is
#                                    the operator's; without it, workload-operator with the version as its tag
#
# Needs Rust. Environment: SOURCE_DATE_EPOCH (the time of the bundle; now if absent).
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
[[ $# -ge 1 && $# -le 2 && $1 != -* ]] || { usage && exit 2; }
type -P cargo >/dev/null || die 3 "no cargo: install Rust (https://rustup.rs)"
mkdir -p "$1"
FOLDER=$(cd "$1" && pwd)
cd "$HACK_DIR/.."

rm -rf "$FOLDER/manifests"
mkdir "$FOLDER/manifests"
cp -r artifacts/olm/bundle.Dockerfile artifacts/olm/metadata artifacts/olm/tests "$FOLDER"
cp artifacts/crds/*.yaml "$FOLDER/manifests"
TIME=${SOURCE_DATE_EPOCH:-$(date +%s)}
# Cargo would build libraries again for the time, and for what a `cargo test` around this sets.
unset SOURCE_DATE_EPOCH CARGO_MANIFEST_DIR "${!CARGO_PKG_@}"
cargo run --quiet --locked --example bundle -- "$FOLDER/manifests" "$TIME" ${2:+"$2"}
