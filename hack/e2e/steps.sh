# shellcheck shell=bash
# What hack/e2e.sh shows in its cluster. Every function is a step: it waits for events, fails with
# a line that says what is not so, and ends with a line that says what was seen.
#
# Needs: cluster.sh, line and fail of inside.sh, the images' names of images.sh.

readonly SYSTEM=workload-operator-system OPERATOR=workload-operator
readonly CACHES=e2e-caches EXAMPLES=e2e-examples
readonly CACHE=memcached-sample
readonly PATIENCE=300 # seconds for any one step, generous for a busy machine
# shellcheck disable=SC2034 # inside.sh reads it
readonly TOO_SLOW=5 # seconds for one small request; less than the operator has to renew its Lease
readonly PHASE_READS=40 # of the reading client, before and after each change

# ---- 0. the machine, without the operator ----------------------------------------------------

# Asks the API server for next to nothing, again and again, and writes down how long that took: what
# it took in vain counts too.
keep_asking() {
  local begin
  while :; do
    begin=$SECONDS
    kubectl get --raw /readyz --request-timeout=30s >/dev/null 2>&1 || true
    printf '%d\n' $((SECONDS - begin)) >>"$DIR/log/answers"
    read -r -t 1 <> <(:) || true # a pause
  done &
}

slowest_answer() { sort -n "$DIR/log/answers" | tail -n 1; }

# Pods run on each node, under Pod Security, and are reached by address, by Service and by name.
prove_machine() {
  local pods pod address
  kubectl create namespace "$CACHES" >/dev/null
  kubectl label namespace "$CACHES" pod-security.kubernetes.io/enforce=restricted >/dev/null
  sed "s|CLIENT_IMAGE|$CLIENT_IMAGE|" hack/e2e/client.yaml | kubectl -n "$CACHES" apply -f - >/dev/null
  sed "s|MEMCACHED_IMAGE|$MEMCACHED_IMAGE|" hack/e2e/canary.yaml | kubectl -n "$CACHES" apply -f - >/dev/null
  rolled_out "$CACHES" client
  expect "$CACHES" daemonset/canary '{.status.numberReady}' "$(wc -w <<<"$NODES")"
  pods=$(kubectl -n "$CACHES" get pods -l app=canary -o 'jsonpath={.items[*].status.podIP}')
  address=$(kubectl -n "$CACHES" get service canary -o 'jsonpath={.spec.clusterIP}')
  for pod in $pods "$address" canary "canary.$CACHES.svc.cluster.local"; do
    wait_until "a pod is reached by $pod" answers "$pod"
  done
  kubectl -n "$CACHES" delete -f hack/e2e/canary.yaml --timeout="${PATIENCE}s" >/dev/null
  wait_until "the canary is deleted" nothing_left "$CACHES" pods -l app=canary
  # shellcheck disable=SC2034 # inside.sh reads it
  MACHINE_PROVED=yes
  : >"$DIR/log/answers" # from now on it counts
  line "pods run, without the operator" "on each node, reached by address, Service and name"
}

# ---- 1. installed --------------------------------------------------------------------------

show_installation() {
  local refusal
  kubectl apply -k artifacts/default >/dev/null
  line "applied" "kubectl apply -k artifacts/default"
  rolled_out "$SYSTEM" "$OPERATOR"
  expect "$SYSTEM" pods -l "app.kubernetes.io/name=$OPERATOR" \
    '{.items[*].spec.serviceAccountName} {.items[*].spec.containers[*].image} {.items[*].status.conditions[?(@.type=="Ready")].status}' \
    "$OPERATOR $OPERATOR_IMAGE True"
  if refusal=$(kubectl -n "$SYSTEM" run root --image="$CLIENT_IMAGE" --dry-run=server 2>&1); then
    fail "namespace $SYSTEM takes a pod that is not restricted"
  fi
  [[ $refusal == *'violates PodSecurity "restricted'* ]] || fail "a pod that is not restricted is refused otherwise: $refusal"
  line "operator Ready under Pod Security restricted" "serviceaccount $OPERATOR, node $(node_of "$(operator_pods)")"
  wait_until "the operator leads, with a token of its own ServiceAccount" operator_has_patched leases
  line "and leads" "as $(holder)"
}

# In the audit log: a successful patch of RESOURCE by the ServiceAccount, in a pod.
operator_has_patched() {
  local requests
  requests=$(grep "serviceaccount:$SYSTEM:$OPERATOR\"" "$DIR/plane/audit.log" | grep '"verb":"patch"' |
    grep "\"resource\":\"$1\"" | grep 'authentication.kubernetes.io/pod-name' | grep '"code":20[01]') &&
    [[ -n $requests ]]
}

# Those that are not on their way out.
operator_pods() {
  kubectl -n "$SYSTEM" get pods -l "app.kubernetes.io/name=$OPERATOR" -o \
    'go-template={{range .items}}{{if not .metadata.deletionTimestamp}}pod/{{.metadata.name}}{{"\n"}}{{end}}{{end}}'
}

node_of() { kubectl -n "$SYSTEM" get "$1" -o 'jsonpath={.spec.nodeName}'; }

holder() { kubectl -n "$SYSTEM" get lease "$OPERATOR" -o 'jsonpath={.spec.holderIdentity}'; }

# ---- 2. memcached, and the other kinds ------------------------------------------------------

show_memcached() {
  local pods pod ip name seen=()
  kubectl -n "$CACHES" apply -f artifacts/examples/memcached.yaml >/dev/null
  is_available "$CACHES" "memcached/$CACHE"
  pods=$(cache_pods)
  [[ $(wc -w <<<"$pods") == 2 ]] || fail "Memcached of size 2 has these pods: $pods"
  line "Memcached Available, 2 real pods" "kubectl apply -f artifacts/examples/memcached.yaml"

  for pod in $pods; do
    ip=$(kubectl -n "$CACHES" get "$pod" -o 'jsonpath={.status.podIP}')
    wait_until "$pod answers" answers "$ip"
    is "limit of $pod" "$(client stats "$ip" limit_maxbytes)" $((64 << 20))
    client set "$ip" who "$pod"
    is "what $ip gives back" "$(client get "$ip" who)" "$pod"
    name=${ip//./-}.$CACHE.$CACHES.svc.cluster.local
    is "what $name gives back" "$(client get "$name" who)" "$pod"
    seen+=("$ip")
  done
  line "stats: limit 64 MiB; set and get by pod" "${seen[*]}, and by their headless names"
  for name in "$CACHE" "$CACHE.$CACHES.svc.cluster.local"; do
    pod=$(client get "$name" who) || fail "$name answers nothing"
    [[ " ${pods//$'\n'/ } " == *" $pod "* ]] || fail "$name leads to '$pod', no pod of $CACHE"
  done
  line "get by the Service's headless name" "$CACHE"
}

show_other_kinds() {
  local address
  kubectl create namespace "$EXAMPLES" >/dev/null
  kubectl label node node-a logs=true >/dev/null
  kubectl -n "$EXAMPLES" apply -f artifacts/examples/nginx-app.yaml >/dev/null
  sed "s|^\( *image:\).*|\1 $DAEMON_IMAGE|" artifacts/examples/syslog.yaml |
    kubectl -n "$EXAMPLES" apply -f - >/dev/null
  is_ready "$EXAMPLES" app/nginx-app
  address=$(kubectl -n "$EXAMPLES" get service nginx-app -o 'jsonpath={.spec.clusterIP}')
  is "the App by its Service's address" "$(client http "$address" 8080)" "nginx answers"
  is "the App by its Service's name" "$(client http "nginx-app.$EXAMPLES" 8080)" "nginx answers"
  line "App answers" "by Service address $address:8080 and by name"
  show_shop
  is_ready "$EXAMPLES" genericdaemon/syslog
  expect "$EXAMPLES" pods -l mydomain.com/genericdaemon=syslog '{.items[*].spec.nodeName}' node-a
  kubectl label node node-b logs=true >/dev/null
  expect "$EXAMPLES" genericdaemon/syslog '{.status.installed}' 2
  kubectl label node node-b logs- >/dev/null
  expect "$EXAMPLES" genericdaemon/syslog '{.status.installed}' 1
  line "GenericDaemon follows the nodes' label" "kubectl label node node-b logs=true; logs-"
}

# The App as one would run it, with its pages in a ConfigMap.
show_shop() {
  kubectl -n "$EXAMPLES" create configmap shop --from-literal=index.html=$'a page of the shop\n' >/dev/null
  kubectl -n "$EXAMPLES" apply -f artifacts/examples/app-production.yaml >/dev/null
  is_ready "$EXAMPLES" app/shop
  is "the shop by its Service's name" "$(client http "shop.$EXAMPLES" 80)" "shop answers"
  is "a page from the ConfigMap" "$(client http "shop.$EXAMPLES" 80 /pages/index.html)" "a page of the shop"
  line "the production App answers" "restricted, 2 pods, a page from its ConfigMap"
}

# Pods that only templates can express: a page written by an init container, with nginx and a sidecar; and
# node-exporter in the namespaces of each node.
show_templates() {
  local address
  kubectl -n "$EXAMPLES" create configmap store --from-literal=GREETING='a page of the store' >/dev/null
  kubectl -n "$EXAMPLES" apply -f - >/dev/null <<YAML
apiVersion: app.example.com/v1
kind: App
metadata: {name: store}
spec:
  image: $SHOP_IMAGE
  envFrom: [{configMapRef: {name: store}}]
  ports: [{name: http, port: 80, targetPort: web}]
  startupProbe: {tcpSocket: {port: web}, periodSeconds: 1, failureThreshold: 30}
  podTemplate:
    spec:
      initContainers:
      - name: render
        image: $DAEMON_IMAGE
        command: [/bin/busybox, sh, -c, 'echo "\$GREETING" >/pages/index.html']
        envFrom: [{configMapRef: {name: store}}]
        volumeMounts: [{name: pages, mountPath: /pages}]
      - {name: sidecar, image: $DAEMON_IMAGE, restartPolicy: Always, command: [/bin/busybox, sleep, "100000"]}
      containers:
      - name: app
        ports: [{name: web, containerPort: 8080}]
        volumeMounts:
        - {name: pages, mountPath: /usr/share/nginx/html/pages, readOnly: true}
        - {name: cache, mountPath: /var/cache/nginx}
      securityContext: {fsGroup: 101}
      volumes: [{name: pages}, {name: cache}]
  serviceTemplate: {spec: {sessionAffinity: ClientIP}}
YAML
  # These nodes have private mounts.
  sed 's/, mountPropagation: HostToContainer//' artifacts/examples/node-exporter.yaml |
    kubectl -n "$EXAMPLES" apply -f - >/dev/null
  is_ready "$EXAMPLES" app/store
  is "a page from an init container" "$(client http "store.$EXAMPLES" 80 /pages/index.html)" "a page of the store"
  is "affinity of the Service" "$(kubectl -n "$EXAMPLES" get service store -o 'jsonpath={.spec.sessionAffinity}')" ClientIP
  line "a page from an init container, with a sidecar" "podTemplate of App store"
  is_ready "$EXAMPLES" genericdaemon/node-exporter
  expect "$EXAMPLES" genericdaemon/node-exporter '{.status.installed}' "$(wc -w <<<"$NODES")"
  address=$(kubectl get node node-a -o 'jsonpath={.status.addresses[?(@.type=="InternalIP")].address}')
  [[ $(client http "$address" 9100 /metrics) == *node_filesystem_size_bytes* ]] ||
    fail "node-exporter on node-a shows no file system"
  line "node-exporter in the node's namespaces" "podTemplate of GenericDaemon node-exporter, $address:9100"
}

# A container whose process exits is named, and the App recovers when its image changes.
show_crash_loop() {
  kubectl -n "$EXAMPLES" apply -f - >/dev/null <<YAML
apiVersion: app.example.com/v1
kind: App
metadata: {name: crash}
spec: {replicas: 1, image: "$CRASH_IMAGE"}
YAML
  # Between two crashes its container runs for a moment, and then the Deployment is available.
  wait_until "a crash loop is reported" crash_is_reported
  line "a crash loop is Degraded" "$CRASH"
  kubectl -n "$EXAMPLES" patch app/crash --type=merge -p "{\"spec\":{\"image\":\"$APP_IMAGE\"}}" >/dev/null
  is_ready "$EXAMPLES" app/crash
  expect "$EXAMPLES" app/crash '{.status.conditions[?(@.type=="Degraded")].status}' False
  line "and Ready with another image" "kubectl patch app/crash"
}

# In one look, since the next may be at another moment. Sets CRASH.
crash_is_reported() {
  local wanted='^True CrashLoopBackOff False Pod crash-[a-z0-9-]+ crashes: container crash \(exit code 1\)$'
  CRASH=$(kubectl -n "$EXAMPLES" get app/crash -o \
    'jsonpath={.status.conditions[?(@.type=="Degraded")].status} {.status.conditions[?(@.type=="Degraded")].reason} {.status.conditions[?(@.type=="Ready")].status} {.status.conditions[?(@.type=="Degraded")].message}')
  [[ $CRASH =~ $wanted ]]
}

# A Memcached as one would run it: its memory holds what it should, an eviction leaves enough instances, and a
# change replaces them one at a time.
show_production_fields() {
  local pods pod ip refusal
  kubectl -n "$CACHES" apply -f - >/dev/null <<YAML
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {name: large}
spec:
  size: 3
  memory: 128Mi
  maxConnections: 2048
  exporter: {}
  minReadySeconds: 2
  podDisruptionBudget: {maxUnavailable: 1}
  podTemplate:
    metadata: {labels: {team: e2e}}
    spec: {containers: [{name: memcached, lifecycle: {preStop: {sleep: {seconds: 1}}}}]}
YAML
  is_ready "$CACHES" memcached/large
  pods=$(large_pods)
  pod=${pods%%$'\n'*}
  ip=$(kubectl -n "$CACHES" get "$pod" -o 'jsonpath={.status.podIP}')
  is "limit of $pod" "$(client stats "$ip" limit_maxbytes)" $((128 << 20))
  is "connections of $pod" "$(client stats "$ip" max_connections)" 2048
  client fill "$ip" 100000 400 || fail "$pod does not take 100,000 items"
  is "items in $pod" "$(client stats "$ip" curr_items)" 100000
  is "evicted items of $pod" "$(client stats "$ip" evictions)" 0
  shows_metrics "$ip"
  line "100,000 items of 400 bytes in 128Mi" "$pod, none evicted, $(kubectl -n "$CACHES" get "$pod" -o 'jsonpath={.spec.containers[0].resources.limits.memory}') limit"

  expect "$CACHES" pdb/large '{.status.disruptionsAllowed}' 1
  evict "$pod" >/dev/null || fail "the first eviction is refused"
  pod=$(tail -n 1 <<<"$pods")
  if refusal=$(evict "$pod" 2>&1); then fail "a second eviction is allowed immediately"; fi
  [[ $refusal == *"disruption budget"* ]] || fail "the second eviction is refused otherwise: $refusal"
  is_ready "$CACHES" memcached/large
  expect "$CACHES" pdb/large '{.status.disruptionsAllowed}' 1
  line "an eviction, and no second one" "$refusal"

  is "fewest instances during a drain" "$(fewest_during drain_large readyReplicas)" 2
  line "a drain of their nodes, one instance at a time" "kubectl drain --pod-selector cache.example.com/memcached=large"
  is "fewest instances during a rollout" "$(fewest_during roll_large availableReplicas)" 2
  line "a rollout one instance at a time" "never fewer than 2 of 3"
  kubectl -n "$CACHES" delete memcached large --timeout="${PATIENCE}s" >/dev/null
  wait_until "the children of large are deleted" nothing_left "$CACHES" deployments,services,pods,poddisruptionbudgets -l cache.example.com/memcached=large
}

# Each setting of -o that the tests generate, as many together as a Memcached may have.
show_options() {
  local all group at=0 ip
  mapfile -t all < <(sed -n '/MEMCACHED_OPTIONS: /,/^];/s/^ *"\(.*\)",$/\1/p' tests/operator/histories/values.rs)
  ((${#all[@]} > 30)) || fail "values.rs has ${#all[@]} settings of -o"
  while ((at < ${#all[@]})); do
    group=$(IFS=,; printf '%s' "${all[*]:at:13}")
    at=$((at + 13))
    kubectl -n "$CACHES" apply -f - >/dev/null <<YAML
apiVersion: cache.example.com/v1alpha1
kind: Memcached
metadata: {name: options}
spec: {size: 1, threads: 2, maxItemSize: 2Mi, options: [$group]}
YAML
    is_ready "$CACHES" memcached/options
    ip=$(kubectl -n "$CACHES" get pods -l cache.example.com/memcached=options --field-selector=status.phase=Running \
      -o 'jsonpath={.items[0].status.podIP}')
    is "limit with $group" "$(client stats "$ip" limit_maxbytes)" $((64 << 20))
  done
  kubectl -n "$CACHES" delete memcached options --timeout="${PATIENCE}s" >/dev/null
  wait_until "the children of options are deleted" nothing_left "$CACHES" deployments,services,pods -l cache.example.com/memcached=options
  line "memcached starts and serves with each setting of -o" "${#all[@]} of them, 13 at a time"
}

# shows_metrics IP: the exporter of that pod serves each series that alerts and dashboard ask for.
shows_metrics() {
  local metrics name value
  metrics=$(client http "$1" 9150 /metrics) || fail "the exporter of $1 does not answer"
  for value in 'memcached_up 1' 'memcached_current_items 100000'; do
    grep -qx "$value" <<<"${metrics//1e+05/100000}" || fail "the exporter of $1 does not say $value"
  done
  for name in $(grep -ho 'memcached_[a-z_]*{' artifacts/components/memcached-monitoring/*.{yaml,json} | tr -d '{' | sort -u); do
    grep -q "^${name}[{ ]" <<<"$metrics" || fail "the exporter of $1 has no series $name"
  done
  line "metrics of memcached by its exporter" "memcached_up 1, and each series of alerts and dashboard"
}

# fewest_during COMMAND FIELD: the smallest such number in the status of `large` until all are ready again. A budget
# counts ready pods, a rollout those that have been for minReadySeconds.
fewest_during() {
  kubectl -n "$CACHES" get deployment large -w -o "jsonpath={.status.$2}{'\n'}" >"$DIR/log/$1.instances" &
  FORWARDER=$!
  if ! "$1" >"$DIR/log/$1.log" 2>&1; then
    kill "$FORWARDER"
    fail "$1: $(tail -n 3 "$DIR/log/$1.log")"
  fi
  is_ready "$CACHES" memcached/large
  kill "$FORWARDER"
  grep . "$DIR/log/$1.instances" | sort -n | head -n 1
}

# One node after the other, so that each instance is evicted; the disruption budget makes kubectl wait.
drain_large() {
  local node
  for node in $NODES; do
    # Not by errexit: the caller asks for the status.
    kubectl drain "$node" --pod-selector=cache.example.com/memcached=large --timeout="${PATIENCE}s" || return
    kubectl uncordon "$node" || return
    is_ready "$CACHES" memcached/large || return
  done
}

roll_large() {
  kubectl -n "$CACHES" patch memcached large --type=merge -p '{"spec":{"threads":2}}'
  wait_until "the change is rolled out" large_has_threads 2
}

large_pods() { kubectl -n "$CACHES" get pods -l cache.example.com/memcached=large,team=e2e -o name; }

large_has_threads() {
  local arguments
  arguments=$(kubectl -n "$CACHES" get pods -l cache.example.com/memcached=large -o 'jsonpath={range .items[*]}{.spec.containers[0].args}{"\n"}{end}')
  [[ $(grep -c "\"-t\",\"$1\"" <<<"$arguments") == 3 && $(wc -l <<<"$arguments") == 3 ]]
}

# By the eviction API, as a drain does it.
evict() {
  local name=${1#pod/}
  kubectl create --raw "/api/v1/namespaces/$CACHES/pods/$name/eviction" -f - <<JSON
{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "$name", "namespace": "$CACHES"}}
JSON
}

cache_pods() { kubectl -n "$CACHES" get pods -l "cache.example.com/memcached=$CACHE" -o name; }

answers() { client stats "$1" version >/dev/null 2>&1; }

# The client in its pod.
client() { kubectl -n "$CACHES" exec deployment/client -- client "$@"; }

# ---- 3. scaled while a client reads ----------------------------------------------------------

# With a sleep before its end, an instance serves on while clients learn of its end, so that no read
# fails. Without it, reads of an instance fail from SIGTERM until DNS has forgotten its address.
show_scaling() {
  local ip size reads failed
  kubectl -n "$CACHES" patch memcached "$CACHE" --type=merge -p '{"spec":{"podTemplate":{"spec":{"containers":[
    {"name":"memcached","lifecycle":{"preStop":{"sleep":{"seconds":5}}}}]}}}}' >/dev/null
  wait_until "each pod has the sleep before its end" pods_sleep 2
  is_ready "$CACHES" "memcached/$CACHE"
  for ip in $(kubectl -n "$CACHES" get pods -l "cache.example.com/memcached=$CACHE" -o 'jsonpath={.items[*].status.podIP}'); do
    client set "$ip" who "$ip"
  done
  sed "s|CLIENT_IMAGE|$CLIENT_IMAGE|" hack/e2e/reader.yaml | kubectl -n "$CACHES" apply -f - >/dev/null
  kubectl -n "$CACHES" wait --for=condition=Ready --timeout="${PATIENCE}s" pod/reader >/dev/null
  reads_on
  for size in 3 1; do
    kubectl -n "$CACHES" scale "memcached/$CACHE" --replicas="$size" >/dev/null
    expect "$CACHES" "memcached/$CACHE" '{.status.readyReplicas} {.status.conditions[?(@.type=="Ready")].status}' "$size True"
    wait_until "exactly $size pods are left" pods_are "$size"
    reads_on
    wait_until "the client reads from exactly $size instances" reads_from "$size"
    line "scaled to $size" "the client reads on, from $(recently_read_from | tr '\n' ' ')"
  done
  reads=$(kubectl -n "$CACHES" logs reader | grep "^read ")
  failed=$(grep -c FAILED <<<"$reads" || true)
  [[ $failed == 0 ]] || fail "$failed of $(wc -l <<<"$reads") reads failed: $(grep -m 3 FAILED <<<"$reads")"
  grep -q hit <<<"$reads" || fail "no read found what was stored"
  line "no read failed" "$(wc -l <<<"$reads") reads: $(grep -c hit <<<"$reads") hits, $(grep -c miss <<<"$reads") misses (a new instance is empty)"
  kubectl -n "$CACHES" delete pod reader --wait >/dev/null
}

# Exactly that many pods are left, and each of them sleeps before its end.
pods_sleep() {
  local sleeps
  sleeps=$(kubectl -n "$CACHES" get pods -l "cache.example.com/memcached=$CACHE" \
    -o 'jsonpath={.items[*].spec.containers[0].lifecycle.preStop.sleep.seconds}')
  [[ $(wc -w <<<"$sleeps") == "$1" ]] && pods_are "$1"
}

pods_are() { [[ $(cache_pods | wc -l) == "$1" ]]; }

# Waits for PHASE_READS more lines of the reader.
reads_on() {
  local wanted
  wanted=$(($(reads_so_far) + PHASE_READS))
  wait_until "the client has read $PHASE_READS times more" reads_reached "$wanted"
}

# The addresses of the last reads, fewer than those that reads_on waited for.
recently_read_from() { kubectl -n "$CACHES" logs reader --tail=$((PHASE_READS - 10)) | awk '{ print $3 }' | sort -u; }

reads_from() { (($(recently_read_from | wc -l) == $1)); }

reads_so_far() { kubectl -n "$CACHES" logs reader | wc -l; }
reads_reached() { (($(reads_so_far) >= $1)); }

# ---- 6. logs, check and ports ----------------------------------------------------------------

show_ports() {
  local pod log body
  pod=$(leader)
  log=$(kubectl -n "$SYSTEM" logs "$pod")
  [[ $log == *"Ready to work"* ]] || fail "kubectl logs $pod: no 'Ready to work' in: $(tail -n 3 <<<"$log")"
  line "kubectl logs" "$(wc -l <<<"$log") lines"
  log=$(kubectl -n "$SYSTEM" exec "$pod" -- /workload-operator check) || fail "workload-operator check in $pod: $log"
  line "workload-operator check, in its pod" "$(awk 'END { $1 = $1; print }' <<<"$log")"
  : >"$DIR/log/port-forward.log"
  kubectl -n "$SYSTEM" port-forward "$pod" :8081 :8443 >"$DIR/log/port-forward.log" 2>&1 &
  FORWARDER=$!
  wait_until "port-forward listens" forwards_to 8443
  forwards_to 8081
  body=$(http_get "$PORT" /readyz)
  is "/readyz" "$body" ok
  forwards_to 8443
  [[ $(https_get "$PORT" /metrics none) == *" 401 "* ]] || fail "/metrics answers without a valid token"
  kubectl create clusterrolebinding e2e-scraper --clusterrole="workload-operator-metrics-reader" --serviceaccount="$SYSTEM:default" >/dev/null
  wait_until "the account may read the metrics" kubectl auth can-i get /metrics --as="system:serviceaccount:$SYSTEM:default" >/dev/null
  body=$(https_get "$PORT" /metrics "$(kubectl -n "$SYSTEM" create token default)")
  kubectl delete clusterrolebinding e2e-scraper >/dev/null
  [[ $body == *"controller_runtime_reconcile_total"* ]] || fail "/metrics lacks controller_runtime_reconcile_total: $(head -n 3 <<<"$body")"
  kill "$FORWARDER"
  line "/readyz and /metrics by port-forward" "$(grep -c '^[a-z]' <<<"$body") series"
}

# Sets PORT to the local one that leads to the pod's port $1.
forwards_to() {
  PORT=$(sed -n "s/^Forwarding from 127.0.0.1:\([0-9]*\) -> $1$/\1/p" "$DIR/log/port-forward.log")
  [[ -n $PORT ]]
}

# https_get PORT PATH TOKEN: head and body, with any certificate.
https_get() {
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nConnection: close\r\n\r\n' "$2" "$3" |
    timeout 10 openssl s_client -quiet -connect "127.0.0.1:$1" 2>/dev/null
}

# http_get PORT PATH: the body.
http_get() {
  local connection line
  exec {connection}<>"/dev/tcp/127.0.0.1/$1"
  printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$2" >&"$connection"
  while IFS= read -r -t 10 -u "$connection" line && [[ ${line%$'\r'} != '' ]]; do :; done
  timeout 10 cat <&"$connection"
  exec {connection}>&-
}

# ---- 7. removed ------------------------------------------------------------------------------

show_removal() {
  local left
  kubectl -n "$CACHES" delete memcached --all --timeout="${PATIENCE}s" >/dev/null
  kubectl -n "$EXAMPLES" delete app,genericdaemon --all --timeout="${PATIENCE}s" >/dev/null
  wait_until "the children of the examples are deleted" nothing_left "$EXAMPLES" deployments,daemonsets,services,pods
  wait_until "the children of $CACHE are deleted" nothing_left "$CACHES" deployments,services,pods -l "cache.example.com/memcached=$CACHE"
  line "custom resources deleted" "children and pods are deleted"
  kubectl delete namespace "$CACHES" "$EXAMPLES" --timeout="${PATIENCE}s" >/dev/null
  kubectl delete -k artifacts/default --timeout="${PATIENCE}s" >/dev/null
  left=$(kubectl get crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,namespaces,pods -A -o name | grep -E "$OPERATOR|example.com|mydomain.com" || true)
  [[ -z $left ]] || fail "kubectl delete -k artifacts/default left: $left"
  wait_until "no pod runs on any node" no_containers
  line "uninstalled, no container is left" "kubectl delete -k artifacts/default"
}

nothing_left() {
  local left
  left=$(kubectl -n "$1" get "$2" "${@:3}" -o name) && [[ -z $left ]]
}

no_containers() {
  local node
  for node in $NODES; do
    [[ -z $(ctr -a "$DIR/$node/containerd.sock" -n k8s.io tasks ls -q) ]] || return 1
  done
}

# ---- what is looked at -----------------------------------------------------------------------

# operator_works SIZE: it makes CACHE that large, in the cluster and in the status.
operator_works() {
  kubectl -n "$CACHES" scale "memcached/$CACHE" --replicas="$1" >/dev/null
  expect "$CACHES" "memcached/$CACHE" '{.status.readyReplicas} {.status.conditions[?(@.type=="Ready")].status}' "$1 True"
}

rolled_out() {
  kubectl -n "$1" rollout status "deployment/$2" --timeout="${PATIENCE}s" >"$DIR/log/rollout.log" 2>&1 ||
    fail "deployment $2 is not rolled out after $PATIENCE s: $(tail -n 1 "$DIR/log/rollout.log")"
}

is_available() { condition_holds "$1" "$2" Available; }
is_ready() { condition_holds "$1" "$2" Ready; }

condition_holds() {
  kubectl -n "$1" wait "$2" --for="condition=$3" --timeout="${PATIENCE}s" >/dev/null 2>&1 ||
    fail "$2 is not $3 after $PATIENCE s: $(kubectl -n "$1" get "$2" -o 'jsonpath={.status.conditions}')"
}

# is WHAT VALUE WANTED
is() { [[ $2 == "$3" ]] || fail "$1 is '$2', not '$3'"; }

# expect NAMESPACE OBJECT... JSONPATH VALUE: until it is so.
expect() {
  local namespace=$1 wanted=${*: -1} path=${*: -2:1} value=''
  local object=("${@:2:$#-3}")
  PAUSE=0.1 until_true "$PATIENCE" true is_as_expected ||
    fail "${object[*]}: $path is '$value' after $PATIENCE s, not '$wanted'"
}

# With the variables of expect.
is_as_expected() {
  value=$(kubectl -n "$namespace" get "${object[@]}" -o "jsonpath=$path") && [[ $value == "$wanted" ]]
}
