#!/usr/bin/env bash
# Installs what .ci/run needs in addition to Rust, Go and git to leave nothing unchecked, as STRICT=1 demands: the
# oldest supported Rust, cargo-deny, cargo-semver-checks, mdBook, actionlint, helm, the
# oldest supported Kubernetes, an earlier version of the operator, and Debian's packages prometheus
# and shellcheck, and those of hack/e2e.sh.
#
#   hack/ci-tools.sh    needs rustup, and root (or sudo) for the packages; an hour, once per user
#
# Everything but the packages is installed for this user alone.
set -euo pipefail
HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
readonly SEMVER_CHECKS_VERSION=0.49.0
case ${1:-} in '') ;; *) usage && exit ;; esac
cd "$HACK_DIR/.."

type -P rustup >/dev/null || die 3 "no rustup, which installs the oldest supported Rust: https://rustup.rs"
rustup toolchain install --profile minimal "$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)"
hack/deny.sh build
[[ $(cargo semver-checks --version 2>/dev/null) == *" $SEMVER_CHECKS_VERSION" ]] ||
  cargo install --quiet --locked --version "$SEMVER_CHECKS_VERSION" cargo-semver-checks
hack/book.sh >/dev/null
hack/lint.sh build
hack/controlplane.sh build
hack/controlplane.sh build --kubernetes-version "$(hack/controlplane.sh versions | head -n 1)"
hack/helm.sh build
hack/campaigns/upgrade.sh build
# shellcheck source=hack/e2e/machine.sh
source hack/e2e/machine.sh
packages=$(missing_packages)
type -P promtool >/dev/null || packages+='prometheus '
type -P shellcheck >/dev/null || packages+='shellcheck '
if [[ -n $packages ]]; then
  type -P apt-get >/dev/null || die 3 "missing, and no apt-get to install them: what Debian has in the packages $packages"
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  # shellcheck disable=SC2016 # the inner shell's
  "${as_root[@]}" "$BASH" -c 'source "$0/lib/packages.sh" && install_packages $1' "$HACK_DIR" "$packages"
fi
