# shellcheck shell=bash
# The cluster of hack/e2e.sh, inside its private namespaces: a switch (the hub), next to it the
# control plane and CoreDNS, and two nodes, each in namespaces of its own.
#
# Needs: HACK_DIR, DIR, CGROUP, say.sh, wait.sh, and PID 1 to be ours: what is started here ends with it.

readonly NODES="node-a node-b"
export NODE_INDEXES="1 2"
export NODE_NETWORK=192.168.77 POD_NETWORK=10.244 HUB=192.168.77.254
export PKI=$DIR/plane/pki
readonly START_SECONDS=300 # for each wait, generous for a busy machine

start_cluster() {
  local node index=0
  export KUBELET KUBE_PROXY PAUSE_IMAGE CGROUP DIR HACK_DIR
  KUBELET=$(hack/controlplane.sh which kubelet)
  KUBE_PROXY=$(hack/controlplane.sh which kube-proxy)
  start_hub
  for node in $NODES; do start_node "$node" $((++index)); done
  start_control_plane
  start_dns
  for node in $NODES; do
    wait_until "node $node is Ready" node_is_ready "$node"
  done
}

start_hub() {
  mount -t tmpfs tmpfs /run/netns 2>/dev/null || true
  ip link set lo up
  ip link add hub type bridge
  ip address add "$HUB/24" dev hub
  ip link set hub up
  local index
  for index in $NODE_INDEXES; do ip route add "$POD_NETWORK.$index.0/24" via "$NODE_NETWORK.$index"; done
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

start_node() {
  local node=$1 index=$2 pid
  mkdir -p "$DIR/$node/log"
  make_cgroup "$CGROUP-$node"
  unshare --mount --net --propagation private "$BASH" hack/e2e/node.sh "$node" "$index" \
    >"$DIR/$node/log/node.log" 2>&1 &
  pid=$!
  wait_until "$node has a network of its own" has_own_network "$pid"
  printf '%s\n' "$pid" >"$DIR/$node/pid"
  ip link add "to-$node" type veth peer name node0 netns "$pid"
  ip link set "to-$node" master hub up
}

has_own_network() { [[ $(readlink "/proc/$1/ns/net") != "$(readlink /proc/self/ns/net)" ]]; }

# In every hierarchy of cgroups; those of version 1 hold no processors and memory at first.
make_cgroup() {
  local hierarchy file
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    mkdir -p "/sys/fs/cgroup/$1"
    return
  fi
  for hierarchy in /sys/fs/cgroup/*/; do
    [[ -e $hierarchy/cgroup.procs ]] || continue
    mkdir -p "$hierarchy$1"
    for file in cpuset.cpus cpuset.mems; do
      [[ ! -e $hierarchy$file ]] || cat "$hierarchy$file" >"$hierarchy$1/$file"
    done
  done
}

start_control_plane() {
  local node index=0 kubeconfig
  kubeconfig=$(hack/controlplane.sh start --dir "$DIR/plane" --real-nodes "$HUB" 2>"$DIR/log/controlplane.log") ||
    die 1 "the control plane does not start: $(tail -n 5 "$DIR/log/controlplane.log")"
  export KUBECONFIG=$kubeconfig
  for node in $NODES; do
    certificate "$node" "/O=system:nodes/CN=system:node:$node" "IP:$NODE_NETWORK.$((++index))"
  done
  certificate kube-proxy "/CN=system:kube-proxy"
  certificate coredns "/CN=system:coredns"
  rm "$PKI/ca.key" # no other certificate is signed with it
  kubectl apply -f hack/e2e/cluster.yaml >/dev/null
  : >"$DIR/certificates-ready"
}

# certificate NAME SUBJECT [SUBJECT_ALTERNATIVE_NAME]: and a kubeconfig that uses it.
certificate() {
  local name=$1 config=$PKI/$1.kubeconfig
  printf 'basicConstraints = critical, CA:FALSE\nextendedKeyUsage = serverAuth, clientAuth\n%s\n' \
    "${3:+subjectAltName = $3}" >"$PKI/$name.cnf"
  {
    openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "$2" \
      -keyout "$PKI/$name.key" -out "$PKI/$name.csr" &&
      openssl x509 -req -in "$PKI/$name.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial \
        -days 30 -extfile "$PKI/$name.cnf" -out "$PKI/$name.crt"
  } >>"$DIR/log/openssl.log" 2>&1 || die 1 "no certificate for $name: $(tail -n 3 "$DIR/log/openssl.log")"
  kubectl config view --raw --minify >"$config"
  kubectl --kubeconfig "$config" config set-credentials "$name" --embed-certs \
    --client-certificate "$PKI/$name.crt" --client-key "$PKI/$name.key" >/dev/null
  kubectl --kubeconfig "$config" config set-context --current --user "$name" >/dev/null
  kubectl --kubeconfig "$config" config delete-user admin >/dev/null
}

start_dns() {
  local context
  context=$(kubectl config current-context)
  cat >"$DIR/Corefile" <<END
.:53 {
  bind $HUB
  errors
  kubernetes cluster.local {
    kubeconfig $PKI/coredns.kubeconfig $context
    ttl 1
  }
}
END
  "$(hack/e2e/binaries.sh which coredns)" -conf "$DIR/Corefile" >"$DIR/log/coredns.log" 2>&1 &
}

# in_node NAME COMMAND...: with the mounts that are there.
in_node() {
  local node=$1
  shift
  nsenter --mount --target "$(<"$DIR/$node/pid")" "$@"
}

node_is_ready() {
  [[ $(kubectl get node "$1" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status} {.spec.taints[*].key}' 2>/dev/null) == "True " ]]
}

# wait_until WHAT COMMAND...: until COMMAND succeeds.
wait_until() { wait_within "$START_SECONDS" "$@"; }

# wait_within SECONDS WHAT COMMAND...
wait_within() {
  local seconds=$1 what=$2
  shift 2
  PAUSE=0.1 until_true "$seconds" true "$@" || fail "waited $seconds s in vain until $what"
}
