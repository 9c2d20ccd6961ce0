#!/usr/bin/env bash
# Signs each file of a release.
#
#   hack/release/sign.sh FOLDER KEY    a result of hack/release.sh or hack/release/index.sh, and a file with a
#                                      private key (PEM)
#
# Needs: openssl.
set -euo pipefail
[[ $# == 2 && -r $1/SHA256SUMS ]] || { echo "usage: hack/release/sign.sh FOLDER KEY" >&2 && exit 2; }
key=$(realpath "$2")
cd "$1"
sha256sum --quiet --check SHA256SUMS
for file in *; do openssl dgst -sha256 -sign "$key" "$file" | base64 --wrap=0 >"$file.sig"; done
