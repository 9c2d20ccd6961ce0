#!/usr/bin/env bash
# Fails if a generated file is not what hack/update-codegen.sh would write.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --locked --quiet --lib health::table
cargo test --locked --quiet --test artifacts
cargo test --locked --quiet --lib operator::check
