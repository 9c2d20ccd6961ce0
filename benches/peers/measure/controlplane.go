package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
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

// An api sends requests to the API server or to etcd's gateway, in JSON. An error ends the program.
type api struct{ *rest.RESTClient }

func newAPI(config *rest.Config) *api {
	config.QPS = -1
	config.UserAgent = userAgent
	config.DisableCompression = true
	config.NextProtos = []string{"http/1.1"} // a connection per request in flight
	config.WarningHandler = rest.NoWarnings{}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return &api{must(rest.UnversionedRESTClientFor(config))}
}

func (a *api) call(verb, uri, contentType string, body []byte) []byte {
	answer, err := a.Verb(verb).RequestURI(uri).SetHeader("Content-Type", contentType).Body(body).Do(context.Background()).Raw()
	if err != nil {
		log.Fatalf("%s %s: %s", verb, uri, err)
	}
	return answer
}

// get decodes an object into reply.
func (a *api) get(uri string, reply any) { check(json.Unmarshal(a.call("GET", uri, "", nil), reply)) }

// post sends an object and decodes the answer into reply.
func (a *api) post(uri string, object, reply any) {
	check(json.Unmarshal(a.call("POST", uri, "application/json", must(json.Marshal(object))), reply))
}

// A controlPlane is a fresh API server with its etcd, the Foo CRD and an empty namespace.
type controlPlane struct {
	*api
	script, folder, kubeconfig string
	audit                      *auditLog
}

// startControlPlane starts one that stops with this program at the latest.
func (b *bench) startControlPlane() *controlPlane {
	cp := &controlPlane{script: b.script, folder: must(filepath.Abs(filepath.Join(out, "controlplane")))}
	cp.stop() // what a killed run left over
	command := exec.Command(cp.script, "start", "--only-api", "--dir", cp.folder,
		"--while-pid", strconv.Itoa(os.Getpid()))
	kubeconfig, err := command.Output()
	if failed := new(exec.ExitError); errors.As(err, &failed) {
		log.Fatalf("%s start: %s: %s", cp.script, err, failed.Stderr)
	}
	check(err)
	cp.kubeconfig = strings.TrimSpace(string(kubeconfig))
	cp.api = newAPI(must(clientcmd.BuildConfigFromFlags("", cp.kubeconfig)))
	cp.prepare(must(os.ReadFile(crd)))
	cp.audit = openAuditLog(filepath.Join(cp.folder, "audit.log"))
	return cp
}

func (cp *controlPlane) stop() { _ = exec.Command(cp.script, "stop", "--dir", cp.folder).Run() }

func (cp *controlPlane) prepare(crd []byte) {
	cp.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/yaml", crd)
	cp.post("/api/v1/namespaces", object{"metadata": object{"name": namespace}}, &object{})
	// The API server needs a moment to take up the CRD.
	for begun := time.Now(); cp.Get().RequestURI(foosPath).Do(context.Background()).Error() != nil; time.Sleep(look) {
		if time.Since(begun) > 30*time.Second {
			log.Fatalf("there is no %s", foosPath)
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
