#!/usr/bin/env bash
# Installs for this user what `.ci/run` needs beside Rust, Go and git to leave nothing unchecked, as STRICT=1
# demands: the oldest Rust that is supported, cargo-deny and cargo-semver-checks. .ci/run itself builds the
# other tools, and installs promtool where it runs as root.
#
#   hack/ci-tools.sh    needs rustup; minutes, once per user
set -euo pipefail
HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
readonly SEMVER_CHECKS_VERSION=0.49.0
case ${1:-} in '') ;; *) usage && exit ;; esac
cd "$HACK_DIR/.."

type -P rustup >/dev/null || die 3 "no rustup, which installs the oldest supported Rust: https://rustup.rs"
rustup toolchain install --profile minimal "$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
hack/deny.sh build
cargo semver-checks --version >/dev/null 2>&1 ||
  cargo install --quiet --locked --version "$SEMVER_CHECKS_VERSION" cargo-semver-checks
