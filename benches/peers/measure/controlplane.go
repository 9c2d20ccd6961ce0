package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	namespace  = "foos"       // holds the Foos
	identities = "contenders" // holds the ServiceAccounts of the contenders
	userPrefix = "system:serviceaccount:" + identities + ":"

	foosPath        = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/" + namespace + "/foos"
	deploymentsPath = "/apis/apps/v1/namespaces/" + namespace + "/deployments"
)

type object map[string]any

// An api sends requests to the API server, in JSON.
type api struct {
	ctx    context.Context
	config *rest.Config
	client *rest.RESTClient
}

func newAPI(ctx context.Context, config *rest.Config) *api {
	config.QPS = -1
	config.DisableCompression = true
	config.NextProtos = []string{"http/1.1"} // a connection per request in flight
	config.WarningHandler = rest.NoWarnings{}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return &api{ctx, config, must(rest.UnversionedRESTClientFor(config))}
}

func (a *api) call(verb, uri, contentType string, body []byte) ([]byte, error) {
	return a.client.Verb(verb).RequestURI(uri).SetHeader("Content-Type", contentType).Body(body).Do(a.ctx).Raw()
}

func (a *api) get(uri string) ([]byte, error) { return a.client.Get().RequestURI(uri).Do(a.ctx).Raw() }

// size returns the bytes of JSON of all objects of a list.
func (a *api) size(path string) (bytes int, err error) {
	for next := ""; ; {
		uri := path + "?limit=5000&continue=" + next
		page, err := a.get(uri)
		// The API server's cache may need a while for what was written to etcd.
		for begun := time.Now(); apierrors.IsTimeout(err) && time.Since(begun) < 2*time.Minute; {
			page, err = a.get(uri)
		}
		if err != nil {
			return 0, err
		}
		bytes += len(page)
		var list metav1.PartialObjectMetadataList
		if err := json.Unmarshal(page, &list); err != nil || list.Continue == "" {
			return bytes, err
		}
		next = list.Continue
	}
}

// post sends an object and decodes the answer into reply, if that is not nil.
func (a *api) post(uri string, object, reply any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	answer, err := a.call("POST", uri, "application/json", body)
	if err == nil && reply != nil {
		err = json.Unmarshal(answer, reply)
	}
	return err
}

// A controlPlane is a fresh API server with its etcd, the Foo CRD and two empty namespaces.
type controlPlane struct {
	*api
	script, folder string
	audit          *auditLog
}

// startControlPlane starts one that stops with this program at the latest.
func (b *bench) startControlPlane() *controlPlane {
	cp := &controlPlane{script: b.script, folder: must(filepath.Abs(filepath.Join(b.out, "controlplane")))}
	cp.stop() // what a killed run left over
	command := exec.CommandContext(b.ctx, cp.script, "start", "--only-api", "--dir", cp.folder,
		"--while-pid", strconv.Itoa(os.Getpid()))
	var complaints bytes.Buffer
	command.Stderr = &complaints
	kubeconfig, err := command.Output()
	if err != nil {
		check(fmt.Errorf("%s start: %w: %s", cp.script, err, complaints.String()))
	}
	cp.api = newAPI(b.ctx, must(clientcmd.BuildConfigFromFlags("", strings.TrimSpace(string(kubeconfig)))))
	cp.prepare(must(os.ReadFile(b.crd)))
	cp.audit = openAuditLog(filepath.Join(cp.folder, "audit.log"))
	return cp
}

// stop works after Ctrl-C, too: it does without the context.
func (cp *controlPlane) stop() {
	if cp.audit != nil {
		cp.audit.file.Close()
	}
	_ = exec.Command(cp.script, "stop", "--dir", cp.folder).Run()
}

func (cp *controlPlane) prepare(crd []byte) {
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	must(cp.call("POST", crds, "application/yaml", crd))
	for _, name := range []string{namespace, identities} {
		check(cp.post("/api/v1/namespaces", object{"metadata": object{"name": name}}, nil))
	}
	const group = "rbac.authorization.k8s.io"
	check(cp.post("/apis/"+group+"/v1/clusterrolebindings", object{
		"metadata": object{"name": identities},
		"roleRef":  object{"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []object{{"apiGroup": group, "kind": "Group", "name": "system:serviceaccounts:" + identities}},
	}, nil))
	// The API server needs a moment to take up the CRD.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := cp.get(foosPath); err == nil {
			return
		} else if time.Now().After(deadline) {
			check(err)
		}
	}
}

// identity creates a ServiceAccount and a kubeconfig with its token. The audit log knows it as user.
func (cp *controlPlane) identity(name string) (kubeconfig, user string) {
	const accounts = "/api/v1/namespaces/" + identities + "/serviceaccounts"
	check(cp.post(accounts, object{"metadata": object{"name": name}}, nil))
	var token struct{ Status struct{ Token string } }
	lifetime := object{"spec": object{"expirationSeconds": 24 * 3600}}
	check(cp.post(accounts+"/"+name+"/token", lifetime, &token))
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: cp.config.Host, CertificateAuthorityData: cp.config.CAData}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	kubeconfig = filepath.Join(cp.folder, "run", name+".kubeconfig")
	check(clientcmd.WriteToFile(*config, kubeconfig))
	return kubeconfig, userPrefix + name
}

// cpu is the time that API server and etcd have used.
func (cp *controlPlane) cpu() time.Duration {
	var sum time.Duration
	for _, name := range []string{"kube-apiserver", "etcd"} {
		record := must(os.ReadFile(filepath.Join(cp.folder, "run", name+".pid")))
		sum += usageOf(must(strconv.Atoi(strings.Fields(string(record))[0]))).cpu
	}
	return sum
}
