# shellcheck shell=bash
# Steps of hack/e2e.sh that the operator has to survive: it is killed, drained, replaced by another
# release, and its token changes.
#
# Needs: steps.sh.

# ---- 4. killed, drained, rolled --------------------------------------------------------------

show_kill() {
  local pod container node
  pod=$(operator_pods)
  node=$(node_of "$pod")
  container=$(kubectl -n "$SYSTEM" get "$pod" -o 'jsonpath={.status.containerStatuses[0].containerID}')
  ctr -a "$DIR/$node/containerd.sock" -n k8s.io tasks kill --signal SIGKILL "${container#containerd://}"
  expect "$SYSTEM" "$pod" '{.status.containerStatuses[0].restartCount} {.status.conditions[?(@.type=="Ready")].status}' "1 True"
  line "operator's process killed" "restarted by the kubelet, Ready"
  operator_works 2
  line "and works: Memcached scaled" "size 2 is Ready"
}

show_drain() {
  local pod node other
  pod=$(operator_pods)
  node=$(node_of "$pod")
  kubectl drain "$node" --ignore-daemonsets --delete-emptydir-data --timeout="${PATIENCE}s" >"$DIR/log/drain.log" 2>&1 ||
    fail "$node is not drained: $(tail -n 3 "$DIR/log/drain.log")"
  rolled_out "$SYSTEM" "$OPERATOR"
  other=$(node_of "$(operator_pods)")
  [[ $other != "$node" ]] || fail "the operator is still on the drained node $node"
  line "its node drained" "$node: evicted, now on $other"
  operator_works 1
  line "and works: Memcached scaled" "size 1 is Ready"
  kubectl uncordon "$node" >/dev/null
}

# With two replicas: the Lease is renewed by one or the other in time, and only its holder writes.
show_rollout() {
  local from size=1 progress
  kubectl -n "$SYSTEM" scale deployment "$OPERATOR" --replicas=2 >/dev/null
  rolled_out "$SYSTEM" "$OPERATOR"
  line "two replicas" "kubectl scale deployment $OPERATOR --replicas=2"
  from=$(wc -l <"$DIR/plane/audit.log")
  kubectl -n "$SYSTEM" set image "deployment/$OPERATOR" "$OPERATOR=$NEXT_OPERATOR_IMAGE" >/dev/null
  kubectl -n "$SYSTEM" rollout status "deployment/$OPERATOR" --timeout="${PATIENCE}s" >"$DIR/log/rollout.log" 2>&1 &
  progress=$!
  while kill -0 "$progress" 2>/dev/null; do
    operator_works $((size = 3 - size))
  done
  wait "$progress" || fail "the new image is not rolled out: $(tail -n 3 "$DIR/log/rollout.log")"
  wait_until "both replicas are of the new image, the old ones gone" \
    operator_images_are "$NEXT_OPERATOR_IMAGE $NEXT_OPERATOR_IMAGE"
  wait_until "a replica of the new image leads" leader_is_there
  operator_works $((size = 3 - size))
  line "rolled to a new image" "$NEXT_OPERATOR_IMAGE"
  judge_leadership "$from"
}

operator_images_are() {
  [[ $(kubectl -n "$SYSTEM" get pods -l "app.kubernetes.io/name=$OPERATOR" -o 'jsonpath={.items[*].spec.containers[*].image}') == "$1" ]]
}

leader() {
  local identity
  identity=$(holder)
  printf 'pod/%s' "${identity%%_*}"
}

leader_is_there() { [[ $'\n'$(operator_pods)$'\n' == *$'\n'$(leader)$'\n'* ]]; }

# judge_leadership FROM: from the audit log after line FROM.
judge_leadership() {
  local verdict
  verdict=$(tail -n +"$(($1 + 1))" "$DIR/plane/audit.log" | grep "serviceaccount:$SYSTEM:$OPERATOR\"" |
    awk -v lease="$(kubectl -n "$SYSTEM" get lease "$OPERATOR" -o 'jsonpath={.spec.leaseDurationSeconds}')" -f hack/e2e/leadership.awk) ||
    fail "leadership: $verdict"
  line "no gap in leadership, no write without it" "$verdict"
}

# ---- 5. the token ----------------------------------------------------------------------------

# A kubelet that is restarted remembers no token and asks for new ones: the operator gets another
# one into its file, long before the old one expires.
restart_kubelets() {
  local node
  POD_WITH_TOKEN=$(operator_pods)
  TOKEN=$(token_in_use "$POD_WITH_TOKEN")
  for node in $NODES; do kill "$(<"$DIR/$node/kubelet.pid")"; done
  line "kubelets restarted" "they ask for new tokens; the operator's was ${TOKEN:0:12}"
}

show_token_rotation() {
  [[ $(operator_pods) == "$POD_WITH_TOKEN" ]] || fail "$POD_WITH_TOKEN was replaced meanwhile"
  wait_until "the operator uses its new token" uses_another_token
  is "restarts of $POD_WITH_TOKEN" "$(kubectl -n "$SYSTEM" get "$POD_WITH_TOKEN" -o 'jsonpath={.status.containerStatuses[0].restartCount}')" 0
  line "the operator goes on with its new token" "${TOKEN_NOW:0:12}, which it took from the file"
}

uses_another_token() {
  TOKEN_NOW=$(token_in_use "$POD_WITH_TOKEN")
  [[ $TOKEN_NOW != "$TOKEN" ]]
}

# The id of the token that the pod's last request came with. A watch that ends is logged with the
# token with which it began; and this script itself comes with a token of the operator's.
token_in_use() {
  grep "pod-name\":\[\"${1#pod/}\"" "$DIR/plane/audit.log" | grep '"userAgent":"workload-operator/' |
    grep -v '"verb":"watch"' |
    sed -n 's/.*credential-id":\["\(JTI=[^"]*\)".*/\1/p' | tail -n 1
}

# The shortest life that Kubernetes gives a token is ten minutes, and the API server takes it for one
# more. So this takes twelve, and is done only on demand.
show_token_expiry() {
  local node uid token expires
  kubectl -n "$SYSTEM" patch deployment "$OPERATOR" --patch-file hack/e2e/short-lived-token.yaml >/dev/null
  rolled_out "$SYSTEM" "$OPERATOR"
  wait_until "a replica with such a token leads" leader_has_volume
  POD_WITH_TOKEN=$(leader)
  node=$(node_of "$POD_WITH_TOKEN")
  uid=$(kubectl -n "$SYSTEM" get "$POD_WITH_TOKEN" -o 'jsonpath={.metadata.uid}')
  token=$(in_node "$node" cat "$DIR/$node/kubelet/pods/$uid/volumes/kubernetes.io~projected/short-lived/token")
  expires=$(claim "$token" exp)
  TOKEN=JTI=$(claim "$token" jti)
  (($(token_status "$token") == 200)) || fail "the token of $POD_WITH_TOKEN is not accepted"
  line "a token for ten minutes" "expires in $((expires - EPOCHSECONDS)) s"
  wait_within 900 "the token is refused" token_is_refused "$token"
  line "it has expired" "the API server answers 401 to it, $((EPOCHSECONDS - expires)) s later"
  uses_another_token || fail "the operator's last request came with the expired token"
  operator_works 3
  operator_works 1
  is "restarts of $POD_WITH_TOKEN" "$(kubectl -n "$SYSTEM" get "$POD_WITH_TOKEN" -o 'jsonpath={.status.containerStatuses[0].restartCount}')" 0
  is "the leader" "$(leader)" "$POD_WITH_TOKEN"
  line "the operator goes on" "${TOKEN:0:12}, then ${TOKEN_NOW:0:12}; leads on, no restart"
}

leader_has_volume() {
  [[ $(kubectl -n "$SYSTEM" get "$(leader)" -o 'jsonpath={.spec.volumes[?(@.name=="short-lived")].name}' 2>/dev/null) == short-lived ]]
}

# claim TOKEN NAME: what the token says of itself.
claim() {
  local payload=${1#*.}
  payload=${payload%%.*}
  while ((${#payload} % 4)); do payload+='='; done
  tr -- '-_' '+/' <<<"$payload" | base64 -d | sed -n "s/.*\"$2\":\"\{0,1\}\([^\",}]*\).*/\1/p"
}

# What the API server answers to who comes with this token alone.
token_status() {
  local answer
  kubectl config view --raw --minify --flatten >"$DIR/token.kubeconfig"
  kubectl --kubeconfig "$DIR/token.kubeconfig" config unset users >/dev/null
  answer=$(kubectl --kubeconfig "$DIR/token.kubeconfig" --token "$1" get --raw /apis 2>&1) && printf 200 && return
  case $answer in
    *Unauthorized* | *'must be logged in'*) printf 401 ;;
    *) fail "asked with the operator's token: $answer" ;;
  esac
}

token_is_refused() { (($(token_status "$1") == 401)); }
