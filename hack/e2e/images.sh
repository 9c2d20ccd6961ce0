# shellcheck shell=bash
# The images of hack/e2e.sh, made without a registry: the operator's from the repository's
# Dockerfile, the others from this machine's own Debian packages. Each becomes an archive in
# $DIR/images, under the name that the manifests use. Where making images does not work at all that is
# the machine's (status 3); the operator's, when its Dockerfile does not build (1).
#
# Needs: HACK_DIR, DIR, say.sh, KUBECTL.

readonly PAUSE_IMAGE=localhost/pause:e2e
readonly CLIENT_IMAGE=localhost/client:e2e
readonly CRASH_IMAGE=localhost/crash:e2e # its process exits immediately

# The manifests say which names the images need.
read_image_names() {
  local manifests
  manifests=$("$KUBECTL" kustomize artifacts/default)
  OPERATOR_IMAGE=$(sed -n 's/^ *-\{0,1\} *image: *\([^ ].*\)/\1/p' <<<"$manifests" | sort -u)
  [[ $OPERATOR_IMAGE == workload-operator:* ]] || die 1 "artifacts/default: which image is the operator's? '$OPERATOR_IMAGE'"
  NEXT_OPERATOR_IMAGE=$OPERATOR_IMAGE-next
  MEMCACHED_IMAGE=$(grep -A1 'name: MEMCACHED_IMAGE' <<<"$manifests" | sed -n 's/^ *value: *//p')
  [[ -n $MEMCACHED_IMAGE ]] || die 1 "artifacts/default sets no MEMCACHED_IMAGE"
  EXPORTER_IMAGE=$(grep -A1 'name: MEMCACHED_EXPORTER_IMAGE' <<<"$manifests" | sed -n 's/^ *value: *//p')
  [[ -n $EXPORTER_IMAGE ]] || die 1 "artifacts/default sets no MEMCACHED_EXPORTER_IMAGE"
  APP_IMAGE=$(sed -n 's/^ *image: *//p' artifacts/examples/nginx-app.yaml)
  SHOP_IMAGE=$(sed -n 's/^ *image: *//p' artifacts/examples/app-production.yaml)
  NODE_IMAGE=$(sed -n 's/^ *image: *//p' artifacts/examples/node-exporter.yaml)
  # With a tag: without one it is `latest`, which a kubelet pulls always, and there is no registry.
  DAEMON_IMAGE=$(sed -n 's/^ *image: *//p' artifacts/examples/syslog.yaml):e2e
}

make_images() {
  mkdir -p "$DIR/images" "$DIR/roots"
  read_image_names
  make_pause
  make_from_debian "$MEMCACHED_IMAGE" /usr/bin/memcached
  make_exporter
  make_from_debian "$CLIENT_IMAGE" /bin/bash --add hack/e2e/client.sh /usr/bin/client \
    --add /usr/bin/getent /usr/bin/getent --entrypoint '["/usr/bin/client"]'
  make_from_debian "$APP_IMAGE" /usr/sbin/nginx --add hack/e2e/nginx.conf /etc/nginx/nginx.conf \
    --entrypoint '["/usr/sbin/nginx"]'
  make_from_debian "$SHOP_IMAGE" /usr/sbin/nginx --add hack/e2e/shop.conf /etc/nginx/nginx.conf \
    --entrypoint '["/usr/sbin/nginx"]' --user 101
  make_from_debian "$DAEMON_IMAGE" /bin/busybox --entrypoint '["/bin/busybox","syslogd","-n","-O","-"]'
  make_from_debian "$NODE_IMAGE" /usr/bin/prometheus-node-exporter \
    --entrypoint '["/usr/bin/prometheus-node-exporter"]' --user 65534
  make_from_debian "$CRASH_IMAGE" /bin/busybox --entrypoint '["/bin/busybox","false"]'
  make_operator
}

buildah() { command buildah --storage-driver vfs --root "$DIR/storage" --runroot "$DIR/runroot" "$@" >>"$DIR/log/images.log" 2>&1; }

# save NAME: into an archive that containerd can import. NAME as in a manifest.
save() {
  local file=${1//[\/:]/_}
  buildah push "$1" "docker-archive:$DIR/images/$file.tar:$(full_name "$1")" ||
    die 3 "saving image $1 failed: $(tail -n 3 "$DIR/log/images.log")"
}

# What a short name stands for, to Docker and to the kubelet.
full_name() {
  case $1 in
    localhost/* | *.*/*) printf '%s' "$1" ;;
    */*:*) printf 'docker.io/%s' "$1" ;;
    */*) printf 'docker.io/%s:latest' "$1" ;;
    *) printf 'docker.io/library/%s' "$1" ;;
  esac
}

# commit NAME ROOT ENTRYPOINT [USER]: an image of one folder.
commit() {
  local container=e2e-${1//[\/:]/-}
  if ! { buildah from --name "$container" scratch && buildah copy "$container" "$2" / &&
    buildah config --env PATH=/usr/bin:/bin --entrypoint "$3" --user "${4:-0}" "$container" &&
    buildah commit --rm "$container" "$1"; }; then
    die 3 "making image $1 failed: $(tail -n 3 "$DIR/log/images.log")"
  fi
  save "$1"
}

make_pause() {
  mkdir -p "$DIR/roots/pause"
  gcc -Os -static -o "$DIR/roots/pause/pause" hack/e2e/pause.c || die 3 "no static C program can be built: gcc failed"
  commit "$PAUSE_IMAGE" "$DIR/roots/pause" '["/pause"]'
}

# The program alone, as in the image of prometheus/memcached_exporter.
make_exporter() {
  install -D -m 755 "$(hack/e2e/binaries.sh which memcached_exporter)" "$DIR/roots/exporter/bin/memcached_exporter"
  commit "$EXPORTER_IMAGE" "$DIR/roots/exporter" '["/bin/memcached_exporter"]'
}

# make_from_debian NAME PROGRAM [--add FILE PLACE] [--entrypoint JSON] [--user ID]: PROGRAM as this machine has
# it, with the libraries it asks for.
make_from_debian() {
  local name=$1 program=$2 root=$DIR/roots/${1//[\/:]/_} entrypoint='[]' user=0 library
  shift 2
  mkdir -p "$root"/{etc,run,tmp,var/lib/nginx,var/log/nginx}
  chmod 1777 "$root/tmp"
  printf 'root:x:0:0::/:\n' >"$root/etc/passwd"
  printf 'root:x:0:\n' >"$root/etc/group"
  cp -L --parents "$program" "$root"
  for library in $(ldd "$program" 2>/dev/null | grep -o '/[^ )]*'); do cp -L --parents "$library" "$root"; done
  while (($# > 0)); do
    case $1 in
      --add) install -D -m 755 "$2" "$root$3" && shift 3 ;;
      --entrypoint) entrypoint=$2 && shift 2 ;;
      --user) user=$2 && shift 2 ;;
    esac
  done
  commit "$name" "$root" "$entrypoint" "$user"
}

make_operator() {
  if [[ -n ${E2E_IMAGE:-} ]]; then
    [[ -r $E2E_IMAGE ]] || die 2 "E2E_IMAGE=$E2E_IMAGE is no file that can be read"
    buildah pull "docker-archive:$E2E_IMAGE" || die 1 "E2E_IMAGE=$E2E_IMAGE is no archive of docker's: $(tail -n 3 "$DIR/log/images.log")"
    buildah tag "$(tail -n 1 "$DIR/log/images.log")" "$OPERATOR_IMAGE"
  else
    build_operator
  fi
  save "$OPERATOR_IMAGE"
  # Another image, as the next release is: the same program, another digest.
  printf 'FROM %s\nLABEL release=next\n' "localhost/$OPERATOR_IMAGE" >"$DIR/next.Dockerfile"
  buildah bud --isolation chroot -t "$NEXT_OPERATOR_IMAGE" -f "$DIR/next.Dockerfile" "$DIR/roots/pause" ||
    die 3 "making image $NEXT_OPERATOR_IMAGE failed: $(tail -n 3 "$DIR/log/images.log")"
  save "$NEXT_OPERATOR_IMAGE"
}

# The Dockerfile's toolchain is this machine: its compiler, C library and Rust toolchain, mounted.
# What cargo built stays in the cache folder, so that a second build is quick.
build_operator() {
  local machine=$DIR/roots/machine cargo=${CARGO_HOME:-$HOME/.cargo} rustup=${RUSTUP_HOME:-$HOME/.rustup}
  local target link
  cache_folder e2e/target
  target=$CACHE_FOLDER
  [[ -d $rustup && -x $cargo/bin/cargo ]] ||
    die 3 "no Rust from rustup in $rustup and $cargo: install it from https://rustup.rs, or set E2E_IMAGE"
  as_user cargo fetch --locked >>"$DIR/log/images.log" 2>&1 || die 3 "cargo fetch failed: $(tail -n 3 "$DIR/log/images.log")"
  mkdir -p "$target" "$machine"/{usr,etc/alternatives,cargo,rustup,tmp,root}
  for link in bin sbin lib lib64; do ln -s "usr/$link" "$machine/$link"; done
  local mounts=(--volume /usr:/usr:ro --volume /etc/alternatives:/etc/alternatives:ro
    --volume "$cargo:/cargo:ro" --volume "$rustup:/rustup:ro")
  # Does this machine's toolchain work as an image at all?
  printf 'FROM localhost/machine\nRUN cargo --version && cc --version\n' >"$DIR/trial.Dockerfile"
  { buildah bud --isolation chroot -t machine -f hack/e2e/machine.Dockerfile "$machine" &&
    buildah bud --isolation chroot "${mounts[@]}" -t trial -f "$DIR/trial.Dockerfile" "$DIR/roots/pause"; } ||
    die 3 "this machine's toolchain does not work in an image: $(tail -n 3 "$DIR/log/images.log")"
  buildah bud --isolation chroot --build-context toolchain=container-image://localhost/machine "${mounts[@]}" \
    --volume "$target:/source/target" -t "$OPERATOR_IMAGE" . ||
    die 1 "building the operator's image failed: $(tail -n 15 "$DIR/log/images.log")"
  [[ -z ${SUDO_USER:-} ]] || chown -R "$SUDO_USER:" "$target"
}
