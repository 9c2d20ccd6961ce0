#!/usr/bin/env bash
# The operator killed at every write that it makes, at every event that it is sent, and at the writes of its
# recovery, on an API server in memory (docs/internals/FAULTS.md, "Crashes"). `cargo test` kills it at a tenth of them.
#
#   hack/campaigns/crashes.sh
#
# Exit status: 0 all passed, 101 one did not.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
export CRASHES=all
exec cargo test --release --locked --test operator crashes -- --nocapture
