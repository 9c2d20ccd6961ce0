package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// putsAtOnce is how many writes etcd accepts in a transaction (--max-txn-ops).
const putsAtOnce = 128

// A pair is a key of etcd and its value. JSON has both in base64.
type pair struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value,omitempty"`
}

// copyInPlace copies Foo 0 and its Deployment to the numbers from..to-1, in etcd: the API server would create only
// some hundreds a second. All names, UIDs and records have the same length, so the lengths in the encoded objects stay
// right.
func (cp *controlPlane) copyInPlace(from, to int, needsRecord bool) {
	etcd := cp.etcd()
	var originals []pair
	var uids []string
	var kept string
	for path, key := range map[string]string{
		foosPath:        "/registry/samplecontroller.k8s.io/foos/" + namespace + "/",
		deploymentsPath: "/registry/deployments/" + namespace + "/",
	} {
		var made metav1.PartialObjectMetadata
		cp.get(path+"/"+fooName(0), &made)
		uids = append(uids, string(made.UID))
		kept += made.Annotations[applied]
		var found struct{ Kvs []pair }
		etcd.post("/v3/kv/range", pair{Key: []byte(key + fooName(0))}, &found)
		originals = append(originals, found.Kvs...)
	}
	if kept != record(fooName(0)) && (kept != "" || needsRecord) {
		log.Fatalf("the Deployment of %s has the record %s, this program expects %s: adapt it to foo.rs",
			fooName(0), kept, record(fooName(0)))
	}
	var puts []object
	for i := from; i < to; i++ {
		renames := []string{fooName(0), fooName(i), record(fooName(0)), record(fooName(i))}
		for _, uid := range uids {
			renames = append(renames, uid, fmt.Sprintf("%s%012d", uid[:len(uid)-12], i))
		}
		rename := strings.NewReplacer(renames...)
		for _, original := range originals {
			copied := pair{[]byte(rename.Replace(string(original.Key))), []byte(rename.Replace(string(original.Value)))}
			puts = append(puts, object{"requestPut": copied})
		}
		if len(puts)+len(originals) > putsAtOnce || i == to-1 {
			etcd.post("/v3/kv/txn", object{"success": puts}, &object{})
			puts = nil
		}
	}
}

// etcd is the JSON gateway of the control plane's etcd.
func (cp *controlPlane) etcd() *api {
	pki := func(name string) string { return filepath.Join(cp.folder, "pki", name) }
	return newAPI(&rest.Config{
		Host:            "https://127.0.0.1:" + cp.runFile("etcd.ports")[0],
		TLSClientConfig: rest.TLSClientConfig{CAFile: pki("ca.crt"), CertFile: pki("server.crt"), KeyFile: pki("server.key")},
	})
}

// applied is the annotation in which ours records the state that it has applied.
const applied = "controller-machinery/applied"

// record returns the record of ours in the Deployment of a Foo. Without it, ours would apply each copy once, and the
// API server accepts some hundreds of those a second.
func record(name string) string {
	hash := fnv.New64a()
	desired := object{"metadata": object{"name": name}, "spec": deploymentSpec(name, "nginx:latest")}
	hash.Write(must(json.Marshal(desired)))
	return fmt.Sprintf("foo/%016x", hash.Sum64())
}

// deploymentSpec is that of foo.NewDeployment, without the empty fields of the Go types.
func deploymentSpec(name, image string) object {
	labels := object{"app": "nginx", "controller": name}
	containers := []object{{"name": "nginx", "image": image}}
	template := object{"metadata": object{"labels": labels}, "spec": object{"containers": containers}}
	return object{"replicas": 1, "selector": object{"matchLabels": labels}, "template": template}
}
