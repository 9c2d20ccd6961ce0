#!/usr/bin/env bash
# Fails if a generated file is not what hack/update-codegen.sh would write.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --quiet --test artifacts
cargo test --quiet --lib operator::check
