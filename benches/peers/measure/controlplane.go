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

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	userAgent = "measure"
	namespace = "foos" // holds everything

	foosPath        = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/" + namespace + "/foos"
	deploymentsPath = "/apis/apps/v1/namespaces/" + namespace + "/deployments"
)

type object map[string]any

// An api sends requests to the API server or to etcd's gateway, in JSON.
type api struct {
	ctx    context.Context
	client *rest.RESTClient
}

func newAPI(ctx context.Context, config *rest.Config) *api {
	config.QPS = -1
	config.UserAgent = userAgent
	config.DisableCompression = true
	config.NextProtos = []string{"http/1.1"} // a connection per request in flight
	config.WarningHandler = rest.NoWarnings{}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return &api{ctx, must(rest.UnversionedRESTClientFor(config))}
}

func (a *api) call(verb, uri, contentType string, body []byte) ([]byte, error) {
	return a.client.Verb(verb).RequestURI(uri).SetHeader("Content-Type", contentType).Body(body).Do(a.ctx).Raw()
}

func (a *api) get(uri string) ([]byte, error) { return a.client.Get().RequestURI(uri).Do(a.ctx).Raw() }

// post sends an object and decodes the answer into reply, if that is not nil.
func (a *api) post(uri string, object, reply any) error {
	answer, err := a.call("POST", uri, "application/json", must(json.Marshal(object)))
	if err == nil && reply != nil {
		err = json.Unmarshal(answer, reply)
	}
	return err
}

// A controlPlane is a fresh API server with its etcd, the Foo CRD and an empty namespace.
type controlPlane struct {
	*api
	script, folder, kubeconfig string
	audit                      *auditLog
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
	cp.kubeconfig = strings.TrimSpace(string(kubeconfig))
	cp.api = newAPI(b.ctx, must(clientcmd.BuildConfigFromFlags("", cp.kubeconfig)))
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
	must(cp.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", crd))
	check(cp.post("/api/v1/namespaces", object{"metadata": object{"name": namespace}}, nil))
	// The API server needs a moment to take up the CRD.
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err := cp.get(foosPath); err == nil {
			return
		} else if time.Now().After(deadline) {
			check(err)
		}
	}
}

// runFile is a file in which the script keeps what it knows of a server.
func (cp *controlPlane) runFile(name string) []string {
	return strings.Fields(string(must(os.ReadFile(filepath.Join(cp.folder, "run", name)))))
}

// cpu is the time that the API server or etcd has used.
func (cp *controlPlane) cpu(server string) time.Duration {
	return cpuOf(must(strconv.Atoi(cp.runFile(server + ".pid")[0])))
}

func (cp *controlPlane) serversCPU() time.Duration { return cp.cpu("kube-apiserver") + cp.cpu("etcd") }
