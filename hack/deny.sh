#!/usr/bin/env bash
# cargo-deny on all dependencies, those of optional features and of tests included: licences,
# duplicates, banned crates and sources as deny.toml has them, and known vulnerabilities where their
# database can be reached.
#
#   hack/deny.sh             check; cargo-deny is built if it is missing (minutes, once per user)
#   hack/deny.sh build       only build it
#   hack/deny.sh if-there    check if cargo-deny is there, and say so if it is not
#
# Environment: XDG_CACHE_HOME.
# Exit status: 0 in order, 2 wrong usage, any other: something is not in order, or cannot be built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
readonly VERSION=0.20.2
readonly DATABASE=https://github.com/RustSec/advisory-db
cache_folder "cargo-deny/$VERSION"
readonly deny=$CACHE_FOLDER/bin/cargo-deny

case ${1:-} in '' | build | if-there) ;; *) die 2 "unknown argument '$1'" ;; esac

if [[ -x $deny ]]; then
  :
elif [[ ${1:-} == if-there ]]; then
  say 'NOT CHECKED: licences, duplicates, sources and advisories: hack/deny.sh builds cargo-deny'
  exit 0
else
  say "building cargo-deny $VERSION (once; some minutes) ..."
  cargo install --quiet --locked --version "$VERSION" --root "$CACHE_FOLDER" cargo-deny
fi
[[ ${1:-} != build ]] || exit 0

"$deny" --locked check --hide-inclusion-graph bans licenses sources
limit=()
! type -P timeout >/dev/null || limit=(timeout 20) # macOS has none
if "${limit[@]}" git ls-remote --quiet "$DATABASE" HEAD >/dev/null 2>&1; then
  # Those of each lock file, as the fuzz targets have one of their own.
  git ls-files '*Cargo.lock' | while read -r lock; do
    "$deny" --locked --manifest-path "$PWD/${lock%.lock}.toml" check --config "$PWD/deny.toml" \
      --hide-inclusion-graph advisories
  done
else
  say "NOT CHECKED: advisories: $DATABASE cannot be reached"
  # Where this is the whole job, a check that was not made has failed.
  [[ -z ${CI:-} || ${1:-} == if-there ]] || exit 1
fi
