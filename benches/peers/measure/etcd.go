package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
func (cp *controlPlane) copyInPlace(from, to int, needsRecord bool) error {
	etcd := cp.etcd()
	var puts []map[string]pair
	var originals []pair
	var uids []string
	var kept string
	for path, key := range map[string]string{
		foosPath:        "/registry/samplecontroller.k8s.io/foos/" + namespace + "/",
		deploymentsPath: "/registry/deployments/" + namespace + "/",
	} {
		var made metav1.PartialObjectMetadata
		check(json.Unmarshal(must(cp.get(path+"/"+fooName(0))), &made))
		uids = append(uids, string(made.UID))
		kept += made.Annotations[applied]
		var found struct{ Kvs []pair }
		check(etcd("range", pair{Key: []byte(key + fooName(0))}, &found))
		originals = append(originals, found.Kvs...)
	}
	if kept != record(fooName(0)) && (kept != "" || needsRecord) {
		return fmt.Errorf("the Deployment of %s has the record %s, this program expects %s: adapt it to foo.rs",
			fooName(0), kept, record(fooName(0)))
	}
	for i := from; i < to; i++ {
		renames := []string{fooName(0), fooName(i), record(fooName(0)), record(fooName(i))}
		for _, uid := range uids {
			renames = append(renames, uid, fmt.Sprintf("%s%012d", uid[:len(uid)-12], i))
		}
		rename := strings.NewReplacer(renames...)
		for _, original := range originals {
			put := pair{[]byte(rename.Replace(string(original.Key))), []byte(rename.Replace(string(original.Value)))}
			puts = append(puts, map[string]pair{"requestPut": put})
		}
		if len(puts)+len(originals) > putsAtOnce || i == to-1 {
			if err := etcd("txn", map[string]any{"success": puts}, nil); err != nil {
				return err
			}
			puts = nil
		}
	}
	return nil
}

// applied is the annotation in which ours records the state that it has applied.
const applied = "controller-machinery/applied"

// record returns the record of ours in the Deployment of a Foo. Without it, ours would apply each copy once, and the
// API server accepts some hundreds of those a second.
func record(name string) string {
	labels := object{"app": "nginx", "controller": name}
	containers := []object{{"name": "nginx", "image": "nginx:latest"}}
	template := object{"metadata": object{"labels": labels}, "spec": object{"containers": containers}}
	spec := object{"replicas": 1, "selector": object{"matchLabels": labels}, "template": template}
	hash := fnv.New64a()
	hash.Write(must(json.Marshal(object{"metadata": object{"name": name}, "spec": spec})))
	return fmt.Sprintf("foo/%016x", hash.Sum64())
}

// etcd returns a function that sends a request to etcd's JSON gateway and decodes the answer into reply, if not nil.
func (cp *controlPlane) etcd() func(method string, request, reply any) error {
	pki := filepath.Join(cp.folder, "pki")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile(filepath.Join(pki, "ca.crt"))))
	own := must(tls.LoadX509KeyPair(filepath.Join(pki, "server.crt"), filepath.Join(pki, "server.key")))
	client := http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}},
	}}
	ports := strings.Fields(string(must(os.ReadFile(filepath.Join(cp.folder, "run", "etcd.ports")))))
	return func(method string, request, reply any) error {
		body := must(json.Marshal(request))
		answer, err := client.Post("https://127.0.0.1:"+ports[0]+"/v3/kv/"+method, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err == nil && answer.StatusCode != http.StatusOK {
			err = fmt.Errorf("etcd %s: %s: %.200s", method, answer.Status, text)
		}
		if err != nil || reply == nil {
			return err
		}
		return json.Unmarshal(text, reply)
	}
}
