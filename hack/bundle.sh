#!/usr/bin/env bash
# The bundle for the Operator Lifecycle Manager, made of artifacts/: the ClusterServiceVersion, the CRDs, and
# what OLM installs beside them, one object per file and without a namespace, which OLM chooses.
#
#   hack/bundle.sh FOLDER [IMAGE]    write it into FOLDER, which may exist: its manifests/ is replaced. IMAGE is
#                                    the operator's; without it, workload-operator with the version as its tag
set -euo pipefail

HACK_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
[[ $# -ge 1 && $# -le 2 && $1 != -* ]] || { usage && exit 2; }
mkdir -p "$1"
FOLDER=$(cd "$1" && pwd)
cd "$HACK_DIR/../artifacts"

one_file_per_object() {
  awk -v folder="$FOLDER/manifests" '
    function write() {
      if (kind) printf "%s", text >(folder "/" name "_" tolower(kind) ".yaml")
      text = kind = name = ""
    }
    FNR == 1 || /^---/ { write() }
    /^---/ || /^#/ || /^  namespace: / { next }
    /^kind: / { kind = $2 }
    /^  name: / && !name { name = $2 }
    { text = text $0 "\n" }
    END { write() }' "$@"
}

rm -rf "$FOLDER/manifests"
mkdir "$FOLDER/manifests"
cp -r olm/bundle.Dockerfile olm/metadata olm/tests "$FOLDER"
cp olm/workload-operator.clusterserviceversion.yaml crds/*.yaml "$FOLDER/manifests"
[[ -z ${2:-} ]] || sed -i -E "s#^( *-? *(containerImage|image): )workload-operator:.*#\1$2#" \
  "$FOLDER/manifests/workload-operator.clusterserviceversion.yaml"
one_file_per_object rbac/people.yaml rbac/metrics-reader.yaml default/service.yaml default/pod-disruption-budget.yaml
