#!/usr/bin/env bash
# Joins the results of hack/release.sh of two machines, which the release workflow has downloaded into dist/built/X64
# and dist/built/ARM64.
#
#   hack/release/join.sh VERSION
#
#   dist/release     the files of both
#   dist/build       what the Dockerfile packs: its context `build`
#   dist/NOTES.md    the version's section of CHANGELOG.md
#
# The following steps of the workflow get the values of release.env, VERSION and CREATED as variables.
set -euo pipefail
cd "$(dirname "$0")/../.."
version=${1:?usage: hack/release/join.sh VERSION}

for folder in dist/built/*; do (cd "$folder" && sha256sum --quiet --check SHA256SUMS); done
# A file without an architecture in its name is the same in both.
diff --recursive --exclude='*-linux-*' --exclude=SHA256SUMS dist/built/X64 dist/built/ARM64
cp --recursive dist/built/X64 dist/release
cp dist/built/ARM64/*-linux-arm64* dist/release
for arch in amd64 arm64; do
  # Files of a workflow arrive without their modes.
  install -D "dist/release/workload-operator-$version-linux-$arch" "dist/build/image/$arch/workload-operator"
  install --mode=644 LICENSE dist/release/THIRD-PARTY-NOTICES.txt "dist/build/image/$arch"
done
awk -v section="## [$version]" 'index($0, "## [") == 1 { on = index($0, section) == 1; next } on' CHANGELOG.md >dist/NOTES.md
[[ -s dist/NOTES.md ]] || { echo "join.sh: CHANGELOG.md has no section [$version]" >&2 && exit 1; }
{ grep '^[A-Z]' release.env && echo "VERSION=$version" && git log -1 --format=CREATED=%cI; } >>"${GITHUB_ENV:-/dev/stdout}"
