#!/usr/bin/env bash
# Pushes the chart of dist/release, and makes install.yaml name the image by its digest: all who apply it get this
# image, whatever becomes of the tag.
#
#   hack/release/pin.sh    after hack/release/join.sh and the push of the image, in the release workflow
#
# Needs: helm, logged in to the registry. Environment: IMAGE and VERSION, as join.sh has set them; DIGEST of the image.
set -euo pipefail
cd "$(dirname "$0")/../../dist/release"
: "${IMAGE:?}" "${VERSION:?}" "${DIGEST:?}"

helm push "workload-operator-$VERSION.tgz" "oci://${IMAGE%/*}/charts"
sed -i "s#$IMAGE:$VERSION\\>#&@$DIGEST#" install.yaml images.txt
grep -qF "$IMAGE:$VERSION@sha256:" install.yaml
rm SHA256SUMS
sha256sum -- * >../SHA256SUMS
mv ../SHA256SUMS .
