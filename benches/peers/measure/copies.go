package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/uuid"
)

// maxOperations of a transaction in etcd, its default of --max-txn-ops.
const maxOperations = 128

// An original is a Foo and its Deployment as the API server has stored them in etcd. Copies differ
// in names and UIDs, which are as long as the original's, so that the bytes stay valid in whichever
// encoding they are. Copies of 25,000 are in place within seconds; by requests it took two minutes.
type original struct {
	etcd   *etcd
	stored []put
	// What is another one in each copy.
	name, fooUID, deploymentUID string
}

// readOriginal reads Foo 0 and its Deployment, which have to be there.
func (cp *controlPlane) readOriginal() (*original, error) {
	store, err := openEtcd(cp.admin.ctx, cp.folder)
	if err != nil {
		return nil, err
	}
	o := &original{etcd: store, name: fooName(0)}
	if o.fooUID, err = cp.admin.uid(foosPath + "/" + o.name); err != nil {
		return nil, err
	}
	if o.deploymentUID, err = cp.admin.uid(deploymentsPath + "/" + o.name); err != nil {
		return nil, err
	}
	for _, kind := range []string{"samplecontroller.k8s.io/foos", "deployments"} {
		stored, err := store.get("/registry/" + kind + "/" + namespace + "/" + o.name)
		if err != nil {
			return nil, err
		}
		o.stored = append(o.stored, stored)
	}
	return o, nil
}

// copyTo puts copies from..to-1 in place.
func (o *original) copyTo(from, to int) error {
	atOnce := maxOperations / len(o.stored)
	return each(0, (to-from+atOnce-1)/atOnce, func(n int) error {
		var copies []put
		begin := from + n*atOnce
		for i := begin; i < min(begin+atOnce, to); i++ {
			copies = append(copies, o.copy(i)...)
		}
		return o.etcd.put(copies)
	})
}

func (o *original) copy(i int) []put {
	own := strings.NewReplacer(o.name, fooName(i), o.fooUID, newUID(), o.deploymentUID, newUID())
	var copies []put
	for _, stored := range o.stored {
		copies = append(copies, put{
			[]byte(own.Replace(string(stored.Key))), []byte(own.Replace(string(stored.Value))),
		})
	}
	return copies
}

func newUID() string { return string(uuid.NewUUID()) }

// uid of the object at this path.
func (a *api) uid(path string) (string, error) {
	reply, err := a.call(http.MethodGet, path, "", nil)
	if err != nil {
		return "", err
	}
	var has struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	err = json.Unmarshal(reply, &has)
	return has.Metadata.UID, err
}

// ---- etcd, through its JSON gateway --------------------------------------------------------

// etcd is a control plane's, spoken to with the API server's certificate.
type etcd struct {
	ctx     context.Context
	address string
	http    *http.Client
}

type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func openEtcd(ctx context.Context, folder string) (*etcd, error) {
	pki := filepath.Join(folder, "pki")
	certificate, err := tls.LoadX509KeyPair(filepath.Join(pki, "server.crt"), filepath.Join(pki, "server.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(pki, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s/ca.crt holds no certificate authority", pki)
	}
	ports, err := os.ReadFile(filepath.Join(folder, "run", "etcd.ports"))
	if err != nil {
		return nil, err
	}
	port, _, _ := strings.Cut(string(ports), " ")
	transport := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{certificate}},
		MaxIdleConnsPerHost: creators,
	}
	return &etcd{ctx, "https://127.0.0.1:" + port, &http.Client{Transport: transport}}, nil
}

// get a key that is there, and its value.
func (e *etcd) get(key string) (put, error) {
	var found struct {
		Pairs []put `json:"kvs"`
	}
	if err := e.call("/v3/kv/range", map[string]any{"key": []byte(key)}, &found); err != nil {
		return put{}, err
	}
	if len(found.Pairs) != 1 {
		return put{}, fmt.Errorf("etcd has no %s", key)
	}
	return found.Pairs[0], nil
}

// put all of these or none.
func (e *etcd) put(puts []put) error {
	var operations []map[string]any
	for _, put := range puts {
		operations = append(operations, map[string]any{"requestPut": put})
	}
	return e.call("/v3/kv/txn", map[string]any{"success": operations}, &struct{}{})
}

func (e *etcd) call(path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(e.ctx, http.MethodPost, e.address+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := e.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd %s: %s: %s", path, response.Status, reply)
	}
	return json.Unmarshal(reply, answer)
}
