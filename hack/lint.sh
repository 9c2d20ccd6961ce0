#!/usr/bin/env bash
# Checks the shell scripts with shellcheck, and the workflows in .github with actionlint.
#
#   hack/lint.sh             check; actionlint is built with Go if it is missing
#   hack/lint.sh build       only build it
#   hack/lint.sh if-there    check with what is there, and say what is not
#
# Environment: XDG_CACHE_HOME.
# Exit status: 0 in order, 1 not in order, 2 wrong usage, 3 install something.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
readonly VERSION=1.7.12
cache_folder "actionlint/$VERSION"
readonly actionlint=$CACHE_FOLDER/actionlint

case ${1:-} in '' | build | if-there) ;; *) die 2 "unknown argument '$1'" ;; esac
if [[ ! -x $actionlint && ${1:-} != if-there ]]; then
  type -P go >/dev/null || die 3 "no Go, which builds actionlint: https://go.dev/dl"
  GOOS='' GOARCH='' GOWORK=off GOBIN=$CACHE_FOLDER go install "github.com/rhysd/actionlint/cmd/actionlint@v$VERSION"
fi
[[ ${1:-} != build ]] || exit 0

if type -P shellcheck >/dev/null; then
  mapfile -d '' -t scripts < <(git ls-files -z '*.sh' .ci)
  # Without the warning of unreachable functions: traps and arguments call some.
  shellcheck --external-sources --exclude=SC2317,SC2329 "${scripts[@]}"
elif [[ ${1:-} == if-there ]]; then
  say 'NOT CHECKED: shell scripts: no shellcheck, which hack/ci-tools.sh installs'
else
  die 3 "no shellcheck: apt-get install shellcheck"
fi
if [[ -x $actionlint ]]; then
  "$actionlint"
else
  say 'NOT CHECKED: the workflows in .github: hack/lint.sh builds actionlint'
fi
