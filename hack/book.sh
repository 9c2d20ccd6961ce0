#!/usr/bin/env bash
# The documentation as a site, in target/book, by mdBook. Each link in it is checked: pages, their sections, and
# files of the repository (not the sections of these), whose links then lead to REPOSITORY of release.env.
#
#   hack/book.sh             build it; mdBook is built if it is missing (minutes, once per user)
#   hack/book.sh if-there    build it if mdBook is there, and say so if it is not
#
# Environment: XDG_CACHE_HOME.
# Exit status: 0 done, 1 a link leads nowhere, 2 wrong usage, 3 mdBook cannot be built.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=hack/lib/say.sh
source hack/lib/say.sh
# shellcheck source=release.env
source release.env
readonly VERSION=0.5.4 BOOK=target/book
cache_folder "mdbook/$VERSION"

case ${1:-} in '' | if-there) ;; *) die 2 "unknown argument '$1'" ;; esac
readonly mdbook=$CACHE_FOLDER/bin/mdbook
if [[ -x $mdbook ]]; then
  :
elif [[ ${1:-} == if-there ]]; then
  say 'NOT CHECKED: the documentation site and its links: hack/book.sh builds mdBook'
  exit 0
else
  say "building mdBook $VERSION (once; some minutes) ..."
  cargo install --quiet --locked --version "$VERSION" --root "$CACHE_FOLDER" --no-default-features --features search mdbook ||
    die 3 "mdBook $VERSION cannot be built: let cargo reach a registry"
fi
rm -rf "$BOOK"
"$mdbook" build docs >/dev/null 2>&1 || "$mdbook" build docs

status=0
for page in "$BOOK"/*.html; do
  [[ ${page##*/} != print.html ]] || continue
  while read -r link; do
    file=${link%%#*} section=
    [[ $link != *'#'* ]] || section=${link#*#}
    if [[ $file == ../* ]]; then # a file of the repository
      target=${file#../} section=
      [[ -e $target ]] || target=${target%.html}.md # mdBook makes pages of all links to .md files
    else
      target=$BOOK/${file:-${page##*/}}
    fi
    if [[ ! -e $target ]] || { [[ -n $section ]] && ! grep -qF "id=\"$section\"" "$target"; }; then
      say "${page##*/}: $link leads nowhere"
      status=1
    fi
  done < <(grep -oE '<a href="[^":]+"' "$page" | sed 's/^<a href="//; s/"$//' | sort -u)
  sed -E -i.orig "s#href=\"\.\./([^\"\#]*)\.html#href=\"../\1.md#g; s#href=\"\.\./([^\"]*)\"#href=\"$REPOSITORY/blob/main/\1\"#g" "$page"
  rm "$page.orig"
done
((status == 0)) || exit 1
say "$BOOK/index.html"
