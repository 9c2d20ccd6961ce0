#!/usr/bin/env bash
# Builds the static binary twice, from the committed sources, in two folders of different length,
# and compares the two bit by bit.
#
#   hack/reproducible.sh              the release, as the image has it (two full release builds)
#   PROFILE=dev hack/reproducible.sh  quicker, and with more in it that could differ
set -euo pipefail
HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
case ${1:-} in help | -h | --help) usage && exit ;; esac
cd "$HACK_DIR/.."
folder=$(mktemp -d "${TMPDIR:-/tmp}/workload-operator-reproducible.XXXXXX")
trap 'rm -rf "$folder"' EXIT

commit=$(git rev-parse HEAD)
for place in one and/another/one; do
  mkdir -p "$folder/$place"
  git archive "$commit" | tar -x -C "$folder/$place"
  say "building in $folder/$place"
  env -u CARGO_TARGET_DIR "$folder/$place/hack/build-static.sh" "$folder/$place.binary"
done
(cd "$folder" && sha256sum one.binary and/another/one.binary)
cmp "$folder/one.binary" "$folder/and/another/one.binary" || die 1 "the two builds differ"
say "the two builds are the same, bit by bit"
