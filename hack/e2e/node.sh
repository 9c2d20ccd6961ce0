#!/usr/bin/env bash
# One node of hack/e2e.sh: containerd, kubelet and kube-proxy in a mount and a network namespace of
# its own, in which this is started (see start_node in cluster.sh). It ends when it is killed.
#
#   node.sh NAME INDEX     files and logs are in $DIR/NAME; needs the environment of cluster.sh
#
# What had to be set, and why:
# - restrict_oom_score_adj, oomScoreAdj 0: lowering the score needs CAP_SYS_RESOURCE, which root in
#   a container has not.
# - failCgroupV1, cgroupDriver cgroupfs and a cgroup of its own: works with both versions of
#   cgroups and without systemd.
# - kube-proxy's conntrack settings 0: they are the machine's, not the namespace's.
# - imageGCHighThresholdPercent 100: no image can be fetched again.
set -euo pipefail
# shellcheck source=hack/lib/say.sh
source "$HACK_DIR/lib/say.sh"
# shellcheck source=hack/lib/wait.sh
source "$HACK_DIR/lib/wait.sh"

readonly PATIENCE=600 # seconds for each wait: the cluster's own, which say more, end before
NODE=$1 INDEX=$2
ADDRESS=$NODE_NETWORK.$INDEX
FILES=$DIR/$NODE
SOCKET=$FILES/containerd.sock

main() {
  private_files
  network
  start_containerd
  until_true "$PATIENCE" containerd_runs test -e "$DIR/certificates-ready" ||
    die 1 "$NODE has no certificates: containerd ended, or the control plane did not start"
  start_kubelet
  start_proxy
  wait # for the end of all of it
}

# What these programs write to is this node's alone.
private_files() {
  local folder setting copy
  mkdir -p "$FILES"/{etc-cni,lib-cni,containerd,state,kubelet,pod-logs,log}
  for folder in /run/netns /run/containerd /var/lib/kubelet /var/lib/cni /var/log/containers /var/log/pods; do
    mkdir -p "$folder"
    mount -t tmpfs tmpfs "$folder"
  done
  # The kubelet writes settings of the whole machine: it gets files of its own instead.
  for setting in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
    copy=$FILES/state/${setting//\//-}
    cat "/proc/sys/$setting" >"$copy"
    mount --bind "$copy" "/proc/sys/$setting"
  done
  mount --make-rshared /
}

has_link() { ip link show node0 >/dev/null 2>&1; }

# node0 comes from cluster.sh, as soon as this process has its namespace.
network() {
  local other
  until_true "$PATIENCE" true has_link || die 1 "$NODE has no link to the others"
  ip link set lo up
  ip address add "$ADDRESS/24" dev node0
  ip link set node0 up
  ip route add default via "$HUB"
  for other in $NODE_INDEXES; do
    [[ $other == "$INDEX" ]] || ip route add "$POD_NETWORK.$other.0/24" via "$NODE_NETWORK.$other"
  done
  echo 1 >/proc/sys/net/ipv4/ip_forward
  cat >"$FILES/etc-cni/10-e2e.conflist" <<END
{"cniVersion": "0.4.0", "name": "e2e", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$FILES/lib-cni",
            "ranges": [[{"subnet": "$POD_NETWORK.$INDEX.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
END
}

start_containerd() {
  local image
  cat >"$FILES/containerd.toml" <<END
version = 2
root = "$FILES/containerd"
state = "$FILES/state/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs", "io.containerd.nri.v1.nri"]
[grpc]
  address = "$SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE_IMAGE"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$FILES/etc-cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
    SystemdCgroup = false
END
  containerd --config "$FILES/containerd.toml" >"$FILES/log/containerd.log" 2>&1 &
  CONTAINERD=$!
  until_true "$PATIENCE" containerd_runs containerd_answers ||
    die 1 "containerd of $NODE does not work: $(tail -n 3 "$FILES/log/containerd.log")"
  for image in "$DIR"/images/*.tar; do
    ctr -a "$SOCKET" -n k8s.io images import "$image" >>"$FILES/log/images.log" 2>&1 ||
      die 1 "$NODE cannot load $image: $(tail -n 3 "$FILES/log/images.log")"
  done
}

containerd_runs() { kill -0 "$CONTAINERD" 2>/dev/null; }

containerd_answers() { ctr -a "$SOCKET" version >/dev/null 2>&1; }

start_kubelet() {
  cat >"$FILES/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ADDRESS
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: $PKI/ca.crt}
authorization: {mode: Webhook}
tlsCertFile: $PKI/$NODE.crt
tlsPrivateKeyFile: $PKI/$NODE.key
cgroupDriver: cgroupfs
cgroupRoot: /$CGROUP-$NODE
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
containerRuntimeEndpoint: unix://$SOCKET
resolvConf: ""
clusterDNS: ["$HUB"]
clusterDomain: cluster.local
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "100Mi", nodefs.available: "1%", imagefs.available: "1%", nodefs.inodesFree: "1%"}
nodeStatusUpdateFrequency: 2s
podLogsDir: $FILES/pod-logs
END
  # Restarted when it ends, as systemd does.
  while :; do
    "$KUBELET" --config="$FILES/kubelet.yaml" --kubeconfig="$PKI/$NODE.kubeconfig" \
      --hostname-override="$NODE" --node-ip="$ADDRESS" --root-dir="$FILES/kubelet" \
      --cert-dir="$FILES/state" --v=2 >>"$FILES/log/kubelet.log" 2>&1 &
    printf '%s\n' $! >"$FILES/kubelet.pid"
    wait $! || true
    read -r -t 1 <> <(:) || true # not in a tight loop, if it cannot start
  done &
}

start_proxy() {
  "$KUBE_PROXY" --kubeconfig="$PKI/kube-proxy.kubeconfig" --proxy-mode=nftables \
    --hostname-override="$NODE" --cluster-cidr="$POD_NETWORK.0.0/16" --nodeport-addresses=primary \
    --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0s \
    --conntrack-tcp-timeout-close-wait=0s >"$FILES/log/kube-proxy.log" 2>&1 &
}

main
