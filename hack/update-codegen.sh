#!/usr/bin/env bash
# Writes the generated files: artifacts/crds/ from the spec.rs of each kind, docs/API.md from the CRDs, docs/CHECKS.md
# from the table of checks, docs/FLAGS.md from the command line, src/workload/health/table.md from the rows of its test.
set -euo pipefail
cd "$(dirname "$0")/.."
UPDATE_ARTIFACTS=1 cargo test --locked --quiet --lib health::tests::table
# The CRDs first: other tests read their files.
UPDATE_ARTIFACTS=1 cargo test --locked --quiet --test artifacts the_crd_files
UPDATE_ARTIFACTS=1 cargo test --locked --quiet --test artifacts
UPDATE_ARTIFACTS=1 cargo test --locked --quiet --lib cli::
