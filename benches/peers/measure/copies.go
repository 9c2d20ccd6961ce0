package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"k8s.io/sample-controller/pkg/apis/samplecontroller/v1alpha1"

	"workload-operator/benches/peers/foo"
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

// putOriginal puts Foo 0 in place as a controller would leave it: with its Deployment and its status,
// managedFields included.
func (cp *controlPlane) putOriginal() (*original, error) {
	reply, err := cp.admin.post(foosPath+"?fieldManager=kubectl-create", newFoo(fooName(0)))
	if err != nil {
		return nil, err
	}
	var made v1alpha1.Foo
	if err := json.Unmarshal(reply, &made); err != nil {
		return nil, err
	}
	reply, err = cp.admin.post(deploymentsPath+"?fieldManager=sample-controller", foo.NewDeployment(&made))
	if err != nil {
		return nil, err
	}
	var deployment appsv1.Deployment
	if err := json.Unmarshal(reply, &deployment); err != nil {
		return nil, err
	}
	_, err = cp.admin.call("PATCH", foosPath+"/"+made.Name+"/status?fieldManager=sample-controller",
		string(types.MergePatchType), []byte(`{"status":{"availableReplicas":0}}`))
	if err != nil {
		return nil, err
	}
	o := &original{name: made.Name, fooUID: string(made.UID), deploymentUID: string(deployment.UID)}
	if o.etcd, err = cp.openEtcd(); err != nil {
		return nil, err
	}
	for _, kind := range []string{"samplecontroller.k8s.io/foos", "deployments"} {
		stored, err := o.etcd.get("/registry/" + kind + "/" + namespace + "/" + o.name)
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

// ---- etcd, through its JSON gateway --------------------------------------------------------

// etcd is a control plane's, spoken to with the API server's certificate.
type etcd struct{ *api }

type put struct {
	Key   []byte `json:"key"`
	Value []byte `json:"value"`
}

func (cp *controlPlane) openEtcd() (*etcd, error) {
	ports, err := os.ReadFile(filepath.Join(cp.folder, "run", "etcd.ports"))
	if err != nil {
		return nil, err
	}
	port, _, _ := strings.Cut(string(ports), " ")
	pki := filepath.Join(cp.folder, "pki")
	config := &rest.Config{Host: "https://127.0.0.1:" + port, TLSClientConfig: rest.TLSClientConfig{
		CAFile: filepath.Join(pki, "ca.crt"), CertFile: filepath.Join(pki, "server.crt"),
		KeyFile: filepath.Join(pki, "server.key"),
	}}
	a, err := newAPI(cp.admin.ctx, config)
	return &etcd{a}, err
}

// get a key that is there, and its value.
func (e *etcd) get(key string) (put, error) {
	reply, err := e.post("/v3/kv/range", object{"key": []byte(key)})
	if err != nil {
		return put{}, err
	}
	var found struct {
		Pairs []put `json:"kvs"`
	}
	if err := json.Unmarshal(reply, &found); err != nil {
		return put{}, err
	}
	if len(found.Pairs) != 1 {
		return put{}, fmt.Errorf("etcd has no %s", key)
	}
	return found.Pairs[0], nil
}

// put all of these or none.
func (e *etcd) put(puts []put) error {
	var operations []object
	for _, put := range puts {
		operations = append(operations, object{"requestPut": put})
	}
	_, err := e.post("/v3/kv/txn", object{"success": operations})
	return err
}
