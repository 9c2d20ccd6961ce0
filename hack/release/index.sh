#!/usr/bin/env bash
# One release from those of several machines: hack/release.sh made each for the architecture of its machine, from
# the same commit.
#
#   hack/release/index.sh OUTPUT FOLDER...    OUTPUT is made; FOLDERs are results of hack/release.sh
#
#   workload-operator-VERSION.oci.tar    the image index, of the images in all FOLDERs
#   image.digest                         that of the index
#   install.yaml, images.txt             name the index by its digest
#   SHA256SUMS                           of all files
#
# The other files are those of the FOLDERs. What does not depend on an architecture must be the same in each. No
# program of the release is run: the job that signs it may run this, too.
# Needs: buildah.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck source=release.env
source "$HACK_DIR/../release.env"
(($# >= 2)) || die 2 "usage: hack/release/index.sh OUTPUT FOLDER..."
type -P buildah >/dev/null || die 3 "no buildah, which makes the index: apt-get install buildah"
OUTPUT=$1
shift
[[ ! -e $OUTPUT ]] || die 2 "$OUTPUT exists"
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
export STORAGE_DRIVER=vfs
store() { buildah --root "$WORK/root" --runroot "$WORK/run" "$@"; }

mkdir -p "$WORK/out"
store manifest create index >/dev/null
for folder in "$@"; do
  (cd "$folder" && sha256sum --quiet --check SHA256SUMS) || die 1 "$folder is not what its SHA256SUMS says"
  for file in "$folder"/*; do
    name=${file##*/}
    case $name in
      *.oci.tar) store manifest add index "oci-archive:$file" >/dev/null && cp "$file" "$WORK/out/" ;;
      image.digest | SHA256SUMS | *.sig) ;;
      # The libraries differ, and with them the bill of materials.
      sbom.cdx.json | THIRD-PARTY-NOTICES.txt | provenance.intoto.json) cp "$file" "$WORK/out/${folder##*/}-$name" ;;
      *)
        [[ ! -e $WORK/out/$name ]] || cmp "$file" "$WORK/out/$name" || die 1 "$name differs between the releases"
        cp "$file" "$WORK/out/"
        ;;
    esac
  done
done

VERSION=$(printf '%s\n' "$WORK"/out/workload-operator-[0-9]*.tgz | sed 's#.*/workload-operator-\(.*\)\.tgz#\1#')
store manifest push --all index "oci:$WORK/index:$VERSION" >/dev/null
sed -n 's/.*"digest":"\(sha256:[0-9a-f]*\)".*/\1/p' "$WORK/index/index.json" >"$WORK/out/image.digest"
tar --create --directory "$WORK/index" --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
  --mode='u=rwX,go=rX' --format=ustar --file "$WORK/out/workload-operator-$VERSION.oci.tar" .
# Artifacts of a workflow arrive without their modes.
chmod 755 "$WORK/out/workload-operator-$VERSION-linux-"*[!r]
sed -i "s#$IMAGE:$VERSION\>#&@$(<"$WORK/out/image.digest")#" "$WORK/out/install.yaml" "$WORK/out/images.txt"
grep -qF "$IMAGE:$VERSION@sha256:" "$WORK/out/install.yaml" || die 1 "install.yaml does not name $IMAGE:$VERSION"
(cd "$WORK/out" && sha256sum -- * >"$WORK/sums" && mv "$WORK/sums" SHA256SUMS)
mkdir -p "$(dirname "$OUTPUT")"
cp -r "$WORK/out" "$OUTPUT"
say "$OUTPUT holds the release for $# architectures"
