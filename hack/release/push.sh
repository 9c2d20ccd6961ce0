#!/usr/bin/env bash
# Pushes the image index and the chart of a release to the registry of release.env, and writes NOTES.md beside
# FOLDER: the release's section of CHANGELOG.md.
#
#   hack/release/push.sh FOLDER    a result of hack/release/index.sh
#
# In a workflow it sets the outputs image and digest. Needs: skopeo, helm. Environment: TOKEN, a password for the
# registry; REGISTRY_USER (default: x-access-token).
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$HACK_DIR/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
# shellcheck source=release.env
source release.env
[[ -r ${1:-}/image.digest ]] || die 2 "usage: hack/release/push.sh FOLDER"
: "${TOKEN:?a password for ${IMAGE%%/*}}"
for tool in skopeo helm; do type -P "$tool" >/dev/null || die 3 "no $tool"; done

chart=$(printf '%s\n' "$1"/workload-operator-[0-9]*.tgz)
version=${chart##*/workload-operator-}
version=${version%.tgz}
notes=$(dirname "$1")/NOTES.md
user=${REGISTRY_USER:-x-access-token}
printf '%s' "$TOKEN" | skopeo login --username "$user" --password-stdin "${IMAGE%%/*}"
printf '%s' "$TOKEN" | helm registry login --username "$user" --password-stdin "${IMAGE%%/*}"
skopeo copy --all "oci-archive:$1/workload-operator-$version.oci.tar" "docker://$IMAGE:$version"
helm push "$chart" "oci://${IMAGE%/*}/charts"
awk -v section="## [$version]" 'index($0, "## [") == 1 { on = index($0, section) == 1; next } on' CHANGELOG.md >"$notes"
[[ -z ${GITHUB_OUTPUT:-} ]] || printf 'image=%s\ndigest=%s\n' "$IMAGE" "$(<"$1/image.digest")" >>"$GITHUB_OUTPUT"
[[ -s $notes ]] || die 1 "CHANGELOG.md has no section [$version]"
