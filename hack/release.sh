#!/usr/bin/env bash
# All files of a release, from the commit that is checked out: the same commit and toolchain make the same
# files, bit for bit.
#
#   hack/release.sh VERSION [--output FOLDER]   into FOLDER (default dist/VERSION)
#   hack/release.sh placeholders                list the values that have to be replaced first
#
# VERSION is that of Cargo.toml, and has a section in CHANGELOG.md. The work tree must have no changes.
# The release workflow makes the image of the binaries, and attests and publishes everything.
#
#   workload-operator-VERSION-linux-ARCH       the static binary; .cdx.json lists the libraries in it
#   workload-operator-VERSION.tgz              the Helm chart
#   workload-operator-bundle-VERSION.tar.gz    the OLM bundle, with its Dockerfile
#   install.yaml, crds.yaml                    for kubectl apply --server-side; images.txt lists the images
#   THIRD-PARTY-NOTICES.txt                    the libraries' licences
#   SHA256SUMS                                 checksums
#
# Needs Rust, git and GNU tar. The script builds cargo-cyclonedx and cargo-about once per user (minutes).
# DRAFT=1 allows placeholders, and a version without a section in CHANGELOG.md.
# Environment: DRAFT, XDG_CACHE_HOME.
# Exit status: 0 done, 1 failed, 2 wrong usage or not in order, 3 install something.
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "$HACK_DIR/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
readonly CYCLONEDX_VERSION=0.5.9 ABOUT_VERSION=0.9.3
# shellcheck source=release.env
source release.env

main() {
  VERSION='' OUTPUT=''
  while (($#)); do
    case $1 in
      -h | --help) usage && exit ;;
      placeholders) list_placeholders && exit ;;
      --output) OUTPUT=${2:?--output FOLDER} && shift ;;
      -*) die 2 "unknown option '$1': hack/release.sh --help" ;;
      *) VERSION=$1 ;;
    esac
    shift
  done
  [[ -n $VERSION ]] || { usage && exit 2; }
  is_in_order
  COMMIT=$(git rev-parse HEAD)
  export SOURCE_DATE_EPOCH REVISION=${COMMIT:0:12} LC_ALL=C TZ=UTC
  SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
  ARCH=$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
  NAME=workload-operator-$VERSION-linux-$ARCH
  TARGET=$(realpath -m "${OUTPUT:-dist/$VERSION}")
  [[ ! -e $TARGET || -e $TARGET/SHA256SUMS ]] || die 2 "$TARGET is there and is no release: choose another --output"
  WORK=$(mktemp -d)
  OUTPUT=$WORK/out # until it is whole
  mkdir "$OUTPUT"
  trap 'rm -rf "$WORK"' EXIT
  find_tools
  git archive HEAD | tar -x -C "$WORK" --one-top-level=source
  cd "$WORK/source"
  replace_placeholders

  step "the binary" make_binary
  step "the bill of materials" make_sbom
  step "notices" make_notices
  step "manifests" make_manifests
  step "the chart" pack "$OUTPUT/workload-operator-$VERSION.tgz" artifacts/helm workload-operator
  step "the bundle" make_bundle
  (cd "$OUTPUT" && sha256sum -- * >"$WORK/sums" && mv "$WORK/sums" SHA256SUMS)
  mkdir -p "${TARGET%/*}"
  rm -rf "$TARGET"
  cd / && cp -r "$OUTPUT" "$TARGET"
  say "$TARGET holds the release; RELEASING.md says what to do with it"
}

step() {
  local what=$1 started=$SECONDS
  shift
  "$@"
  printf '%4d s  %s\n' $((SECONDS - started)) "$what" >&2
}

is_in_order() {
  local cargo
  cargo=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
  [[ $VERSION == "$cargo" ]] || die 2 "Cargo.toml has the version $cargo, not $VERSION: set it there first (RELEASING.md)"
  [[ -z $(git status --porcelain) ]] || die 2 "there are changes that are not committed: git status"
  [[ -z ${DRAFT:-} ]] || return 0
  grep -q "^## \[$VERSION\]" CHANGELOG.md || die 2 "CHANGELOG.md has no section [$VERSION]"
  [[ -z $(list_placeholders) ]] || die 2 "there are still placeholders: $(list_placeholders | tr '\n' ' ')"
}

# In all files but those in artifacts, which replace_placeholders changes in the release.
list_placeholders() {
  git grep -nE '@example\.com/|^IMAGE=.*example\.com|https://example\.com/workload-operator|maintainers@example\.com' \
    -- ':!artifacts' ":!hack/${0##*/}" || true
}

# Sets CYCLONEDX and ABOUT, and builds them if they are missing.
find_tools() {
  cache_folder "release-tools/$CYCLONEDX_VERSION-$ABOUT_VERSION"
  local tool version
  for tool in "cargo-cyclonedx $CYCLONEDX_VERSION" "cargo-about $ABOUT_VERSION --features cli"; do
    read -r tool version features <<<"$tool"
    [[ -x $CACHE_FOLDER/bin/$tool ]] || {
      say "building $tool $version (once; some minutes) ..."
      # shellcheck disable=SC2086 # words of their own
      cargo install --quiet --locked --version "$version" --root "$CACHE_FOLDER" $features "$tool"
    }
  done
  CYCLONEDX=$CACHE_FOLDER/bin/cargo-cyclonedx ABOUT=$CACHE_FOLDER/bin/cargo-about
}

# Puts the values of release.env where the sources have those of example.com.
replace_placeholders() {
  local chart=artifacts/helm/workload-operator
  grep -rlE 'https://example\.com/workload-operator|maintainers@example\.com' artifacts |
    xargs sed -i "s#https://example.com/workload-operator/docs/#$REPOSITORY/blob/v$VERSION/docs/#
      s#https://example.com/workload-operator#$REPOSITORY#; s#maintainers@example.com#$CONTACT#"
  sed -i "s#^  repository: \"\"\$#  repository: $IMAGE#" "$chart/values.yaml"
  grep -q "^  repository: $IMAGE\$" "$chart/values.yaml" || die 1 "values.yaml has no empty repository to replace"
  sed -i "s#^  artifacthub.io/images: |\$#&\n    - {name: workload-operator, image: $IMAGE:$VERSION}#" "$chart/Chart.yaml"
  printf 'home: %s\nsources: [%s]\nmaintainers: [{name: workload-operator, email: %s}]\n' \
    "$REPOSITORY" "$REPOSITORY" "$CONTACT" >>"$chart/Chart.yaml"
}

make_binary() {
  # Below the sources, whose path is not in the binary.
  CARGO_TARGET_DIR=$PWD/target PROFILE=release hack/build-static.sh "$OUTPUT/$NAME" 2>"$WORK/build.log" || {
    tail -n 20 "$WORK/build.log" >&2
    die 1 "the binary does not build"
  }
}

# images.txt lists what a registry without access to others has to have.
make_manifests() {
  "$OUTPUT/$NAME" manifests --image "$IMAGE:$VERSION" >"$OUTPUT/install.yaml"
  "$OUTPUT/$NAME" crds >"$OUTPUT/crds.yaml"
  sed -n 's/^ *image: "*\([^"]*\)"*$/\1/p; /name: [A-Z_]*_IMAGE$/{n;s/^ *value: *//p;}' "$OUTPUT/install.yaml" >"$OUTPUT/images.txt"
}

# pack FILE FOLDER NAME: NAME in FOLDER as an archive with the time of the commit, with files for links.
pack() {
  tar --create --dereference --directory "$2" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 \
    --numeric-owner --mode='u=rwX,go=rX' --format=ustar "$3" | gzip --no-name >"$1"
}

make_bundle() {
  CARGO_TARGET_DIR=$PWD/target hack/bundle.sh "$WORK/olm" "$IMAGE:$VERSION"
  pack "$OUTPUT/workload-operator-bundle-$VERSION.tar.gz" "$WORK" olm
}

make_sbom() {
  "$CYCLONEDX" cyclonedx --quiet --format json --spec-version 1.5 --describe binaries \
    2>"$WORK/sbom.log" || { cat "$WORK/sbom.log" >&2; die 1 "cargo-cyclonedx failed"; }
  # Each document has a random serial number; a checkout elsewhere has other paths.
  sed -e '/"serialNumber"/d' -e "s#$WORK/source#/source#g" workload-operator_bin.cdx.json >"$OUTPUT/$NAME.cdx.json"
}

make_notices() {
  # cargo-about asks cargo for the libraries of every platform, and a build fetches only those of its own.
  cargo fetch --quiet --locked
  "$ABOUT" generate --fail --offline --locked --config hack/release/about.toml \
    hack/release/notices.hbs >"$OUTPUT/THIRD-PARTY-NOTICES.txt" 2>"$WORK/about.log" ||
    { tail -n 20 "$WORK/about.log" >&2; die 1 "cargo-about failed"; }
}

main "$@"
