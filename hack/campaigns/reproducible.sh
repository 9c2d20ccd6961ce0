#!/usr/bin/env bash
# Makes the whole release of the commit that is checked out twice, in folders of different length, and
# compares the two: every file has to be the same, bit by bit.
#
#   hack/campaigns/reproducible.sh    two full release builds; needs what hack/release.sh needs
#
# Placeholders are allowed, as in DRAFT=1 hack/release.sh: they do not vary.
set -euo pipefail
HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
case ${1:-} in '') ;; *) usage && exit ;; esac
cd "$HACK_DIR/.."
folder=$(mktemp -d "${TMPDIR:-/tmp}/workload-operator-reproducible.XXXXXX")
trap 'rm -rf "$folder"' EXIT

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
for place in one and/another/one; do
  mkdir -p "$folder/$place"
  TMPDIR=$folder/$place DRAFT=1 hack/release.sh "$version" --output "$folder/$place/release"
done
diff -r "$folder/one/release" "$folder/and/another/one/release" || die 1 "the two releases differ"
cat "$folder/one/release/SHA256SUMS"
say "the two releases are the same, bit by bit"
