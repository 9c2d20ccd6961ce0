# shellcheck shell=bash
# One program of a Go module in hack/, at the version that its go.mod pins, built once per user.
#
# - It is looked for in the variable that TOOL_VARIABLE names (if set), in the cache folder, then where
#   the script's find_elsewhere finds it. `build`, and running it, builds with Go what is found nowhere;
#   `which` builds nothing (status 3): a test that could use it waits for no build.
# - The cache folder's name is a hash of the module's files, as in assets.sh. It appears under its name
#   when it is complete. Two builds at once do the work twice and do not collide.
#
# Needs: HACK_DIR, say.sh, and of the script: TOOL (its name; its module is in hack/$TOOL), PACKAGE,
# TOOL_VARIABLE (the variable with a path to it, which the user may set), find_elsewhere (sets FOUND,
# or fails), linker_flags VERSION (prints what the linker gets beside -s -w). If the script has
# put_beside FOLDER TEMPORARY, it puts what belongs to the program into that folder, before the program
# appears there, and may write to the temporary file; programs it builds with go_build.

# shellcheck source=hack/lib/go.sh
source "$HACK_DIR/lib/go.sh"

# build, which, or its arguments.
tool_main() {
  case ${1:-} in
    build) find_tool || build_tool ;;
    which)
      find_tool || die 3 "$TOOL is not built: hack/${0##*/} build"
      printf '%s\n' "$FOUND"
      ;;
    '') usage && exit 2 ;;
    *)
      find_tool || build_tool
      exec "$FOUND" "$@"
      ;;
  esac
}

# Sets FOUND to the program; fails, with CACHED as the place for it, if it has to be built.
find_tool() {
  local key
  if [[ -n ${!TOOL_VARIABLE:-} ]]; then
    FOUND=${!TOOL_VARIABLE}
    [[ -x $FOUND ]] || die 2 "$TOOL_VARIABLE=$FOUND is no program"
    return
  fi
  cache_folder "$TOOL"
  key=$(cd "$HACK_DIR/$TOOL" && { uname -sm; cat go.mod go.sum; find . -name '*.go' -exec cat {} +; } | sha256sum)
  CACHED=$CACHE_FOLDER/${key:0:12}/$TOOL
  FOUND=$CACHED
  [[ ! -x $FOUND ]] || return 0
  find_elsewhere
}

# Sets TEMPORARY, for end_build.
build_tool() {
  local version started
  require_go
  mkdir -p "${CACHED%/*}"
  TEMPORARY=$(mktemp "${CACHED%/*}/.building.XXXXXX")
  trap end_build EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # shellcheck disable=SC2153 # the script sets PACKAGE
  version=$(awk -v package="$PACKAGE/" '{ sub(/^require /, "") }
    $2 ~ /^v[0-9]/ && index(package, $1 "/") == 1 { print $2; exit }' "$HACK_DIR/$TOOL/go.mod")
  started=$(now_us)
  say "building $TOOL $version (once; a few minutes) ..."
  go_build "$TOOL" "$TEMPORARY" "$PACKAGE" "$(linker_flags "$version")"
  if declare -F put_beside >/dev/null; then put_beside "${CACHED%/*}" "$TEMPORARY.beside"; fi
  chmod 755 "$TEMPORARY"
  mv "$TEMPORARY" "$CACHED"
  FOUND=$CACHED
  trap - EXIT INT TERM
  end_build
  say "built in $(since "$started") s: $CACHED"
}

# go_build NAME FILE PACKAGE [LINKER_FLAGS]: builds the program NAME into FILE. Sets BUILD_PID, for
# end_build.
go_build() {
  local name=$1 file=$2 package=$3 flags=${4:-} log=$TEMPORARY.log started
  started=$(now_us)
  in_module "$HACK_DIR/$TOOL" build -trimpath -gcflags=all=-dwarf=false -ldflags "-s -w $flags" -o "$file" "$package" >"$log" 2>&1 &
  BUILD_PID=$!
  while kill -0 "$BUILD_PID" 2>/dev/null; do
    [[ ! -t 2 ]] || printf '\r  %4d s ' $((($(now_us) - started) / 1000000)) >&2
    sleep 0.5
  done
  if ! wait "$BUILD_PID"; then
    BUILD_PID=
    grep -v '^go: downloading' "$log" | tail -n 15 >&2 || true
    # A machine without a way to the sources lacks something, as one without Go does.
    ! grep -qE 'Get "https?://|dial tcp|module lookup disabled' "$log" ||
      die 3 "the sources of $name cannot be fetched, see the lines above (GOPROXY=$(go env GOPROXY))"
    die 1 "building $name failed, see the lines above"
  fi
  BUILD_PID=
}

# Whatever ends the script ends go, which would build on for nobody.
end_build() {
  if [[ -n ${BUILD_PID:-} ]]; then
    kill "$BUILD_PID" 2>/dev/null || true
    wait "$BUILD_PID" 2>/dev/null || true
  fi
  rm -f "$TEMPORARY" "$TEMPORARY.log" "$TEMPORARY.beside"
}

require_go() {
  type -P go >/dev/null ||
    die 3 "no $TOOL of those that the head of hack/$TOOL.sh names, and no Go to build it: install Go >= 1.$GO_NEEDED from https://go.dev/dl"
  is_new_enough "$HACK_DIR/$TOOL" ||
    die 3 "no $TOOL, and Go >= 1.$GO_NEEDED is needed to build it: https://go.dev/dl"
}
