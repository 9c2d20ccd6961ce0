# shellcheck shell=bash
# Go in the modules of this repository.

readonly GO_NEEDED=26 # Go 1.26, the `go` line of the modules

# in_module FOLDER VERB ARGUMENTS...: becomes go in that module, untouched by a workspace, a vendor
# folder or a cross-compiling environment around it. GOFLAGS, GOPROXY and the caches are the user's. To
# be called in $( ) or with &: then that process is go itself, and can be ended.
in_module() {
  local folder=$1 verb=$2
  shift 2
  cd "$folder" || exit
  CGO_ENABLED=0 GO111MODULE=on GOWORK=off GOOS='' GOARCH='' exec go "$verb" -mod=readonly "$@"
}

# is_new_enough FOLDER: whether the Go that builds that module is. Asked inside it: since 1.21, go
# fetches the toolchain that go.mod names automatically.
is_new_enough() {
  local version minor
  version=$(cd "$1" && GOWORK=off go env GOVERSION 2>/dev/null) || version=
  minor=${version#go1.}
  minor=${minor%%[!0-9]*}
  ((${minor:-0} >= GO_NEEDED))
}
