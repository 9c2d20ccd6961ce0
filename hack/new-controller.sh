#!/usr/bin/env bash
# Makes the package of a new controller from template/: a kind with its CustomResourceDefinition, a reconcile, tests,
# a Dockerfile, and manifests with RBAC. The library is copied into it.
#
#   hack/new-controller.sh FOLDER KIND GROUP [PLURAL]
#   hack/new-controller.sh ../gadget-operator Gadget example.org
#
# The package has the name of the folder. The plural of the kind is its name in lower case and an s.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '5,8s/^# *//p' "$0" >&2; }
if (($# < 3 || $# > 4)); then usage && exit 2; fi
folder=$1 kind=$2 group=$3
singular=$(tr '[:upper:]' '[:lower:]' <<<"$kind")
plural=${4:-${singular}s}
name=$(basename "$folder")

# matches VALUE PATTERN MESSAGE: ends the script with the message if the value is another.
matches() { [[ $1 =~ ^($2)$ ]] || { echo "new-controller.sh: $3" >&2 && exit 1; }; }
label='[a-z]([a-z0-9-]{0,40}[a-z0-9])?'
matches "$name" "$label" "\"$name\" cannot name the package: use lower case letters, digits and -, such as gadget-operator"
matches "$kind" '[A-Z][A-Za-z0-9]{0,62}' "\"$kind\" cannot be a kind: use letters and digits in CamelCase, such as Gadget"
case $kind in
  Action | Arc | Box | Cluster | Condition | Context | Debug | Default | Deployment | Id | JsonSchema | Manager | None | Ok | Option | \
    ReconcileError | Result | Self | Server | Some | String | Typed | Vec)
    echo "new-controller.sh: the template uses a type $kind: make the package with another kind, and rename it" >&2
    exit 1
    ;;
esac
matches "$group" "$label(\.$label)+" "\"$group\" cannot be an API group: use a domain that is yours, such as example.org"
matches "$plural" '[a-z][a-z0-9]*' "\"$plural\" cannot be a plural: use lower case letters, such as gadgets"
if [[ -e $folder ]]; then
  echo "new-controller.sh: $folder exists already: name a folder to create" >&2
  exit 1
fi

package=$(mktemp -d) made=
# shellcheck disable=SC2329 # the trap calls it
clean_up() {
  rm -rf "$package"
  [[ -n $made ]] || rm -rf "$folder"
}
trap clean_up EXIT
cp -R "$root/template" "$folder"
rm -rf "$folder/target"
# The longest names first, and in two steps, since a new name may contain one of the old.
find "$folder" -type f -exec sed -i.orig \
  -e 's/widget-operator/@1@/g' -e 's/widgets/@2@/g' -e 's/Widget/@3@/g' -e 's/widget/@4@/g' -e 's/example\.com/@5@/g' \
  -e "s/@1@/$name/g" -e "s/@2@/$plural/g" -e "s/@3@/$kind/g" -e "s/@4@/$singular/g" -e "s/@5@/$group/g" \
  -e 's#path = "[^"]*"#path = "controller-machinery"#' {} +
find "$folder" -name '*.orig' -delete

# The library, as `cargo publish` would upload it, and the versions that it was tested with.
cargo package --quiet --locked --allow-dirty --no-verify --target-dir "$package" \
  --manifest-path "$root/crates/machinery/Cargo.toml"
mkdir "$folder/controller-machinery"
# -m: cargo compares times, and those in a package are all the same.
tar -xzmf "$package"/package/*.crate --strip-components 1 -C "$folder/controller-machinery"
cp "$root/Cargo.lock" "$folder/"
cargo update --quiet --workspace --manifest-path "$folder/Cargo.toml"
cargo fmt --manifest-path "$folder/Cargo.toml" # a longer name moves line breaks
made=1
echo "$folder is there. Next: cd $folder && cargo test"
