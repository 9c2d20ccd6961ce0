package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// namespace holds the Foos, identities the ServiceAccounts of the contenders.
const (
	namespace  = "foos"
	identities = "contenders"
)

const (
	foosPath        = "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/" + namespace + "/foos"
	deploymentsPath = "/apis/apps/v1/namespaces/" + namespace + "/deployments"
)

// A controlPlane is a fresh API server with its etcd, the Foo CRD and two empty namespaces.
type controlPlane struct {
	script, folder string
	admin          *api
	audit          *auditLog
	proxies        []*delayProxy
}

func startControlPlane(ctx context.Context, script, crd, folder string) (*controlPlane, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	cp := &controlPlane{script: script, folder: folder}
	cp.stop() // what a killed run left over
	command := exec.CommandContext(ctx, script, "start", "--only-api", "--dir", folder,
		"--while-pid", strconv.Itoa(os.Getpid()))
	var errors bytes.Buffer
	command.Stderr = &errors
	kubeconfig, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("%s start: %w: %s", script, err, errors.String())
	}
	config, err := clientcmd.BuildConfigFromFlags("", strings.TrimSpace(string(kubeconfig)))
	if err == nil {
		cp.admin, err = newAPI(ctx, config)
	}
	if err == nil {
		err = cp.prepare(crd)
	}
	if err == nil {
		cp.audit, err = openAuditLog(filepath.Join(folder, "audit.log"))
	}
	if err != nil {
		cp.stop()
		return nil, err
	}
	return cp, nil
}

func (cp *controlPlane) stop() {
	for _, proxy := range cp.proxies {
		proxy.close()
	}
	// Without the caller's context: this has to happen after Ctrl-C, too.
	_ = exec.Command(cp.script, "stop", "--dir", cp.folder).Run()
}

func (cp *controlPlane) prepare(crd string) error {
	manifest, err := os.ReadFile(crd)
	if err != nil {
		return err
	}
	const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if _, err := cp.admin.call(http.MethodPost, crds, "application/yaml", manifest); err != nil {
		return err
	}
	for _, name := range []string{namespace, identities} {
		if _, err := cp.admin.post("/api/v1/namespaces", named(name)); err != nil {
			return err
		}
	}
	binding := object{
		"metadata": object{"name": identities},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []object{{
			"apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
			"name": "system:serviceaccounts:" + identities,
		}},
	}
	if _, err := cp.admin.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding); err != nil {
		return err
	}
	return cp.untilServed(foosPath)
}

type object map[string]any

func named(name string) object { return object{"metadata": object{"name": name}} }

// untilServed waits until the API server has taken up the CRD.
func (cp *controlPlane) untilServed(path string) error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		_, err := cp.admin.call(http.MethodGet, path, "", nil)
		if err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// identity makes a ServiceAccount and returns a kubeconfig with its token, and the user name
// under which the audit log knows it. Requests pass a proxy that delays them, if delay > 0.
func (cp *controlPlane) identity(name string, delay time.Duration) (kubeconfig, user string, err error) {
	accounts := "/api/v1/namespaces/" + identities + "/serviceaccounts"
	var exists *statusError
	if _, err := cp.admin.post(accounts, named(name)); err != nil && !(errors.As(err, &exists) && exists.code == http.StatusConflict) {
		return "", "", err
	}
	reply, err := cp.admin.post(accounts+"/"+name+"/token", object{"spec": object{"expirationSeconds": 24 * 3600}})
	if err != nil {
		return "", "", err
	}
	var token struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := json.Unmarshal(reply, &token); err != nil {
		return "", "", err
	}
	server := cp.admin.config.Host
	if delay > 0 {
		proxy, err := startDelayProxy(strings.TrimPrefix(server, "https://"), delay)
		if err != nil {
			return "", "", err
		}
		cp.proxies = append(cp.proxies, proxy)
		server = "https://" + proxy.address()
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["bench"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: cp.admin.config.CAData}
	config.AuthInfos["bench"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	config.CurrentContext = "bench"
	kubeconfig = filepath.Join(cp.folder, "run", name+".kubeconfig")
	return kubeconfig, "system:serviceaccount:" + identities + ":" + name, clientcmd.WriteToFile(*config, kubeconfig)
}

// cpu is the time that API server and etcd have used.
func (cp *controlPlane) cpu() (time.Duration, error) {
	var sum time.Duration
	for _, name := range []string{"kube-apiserver", "etcd"} {
		record, err := os.ReadFile(filepath.Join(cp.folder, "run", name+".pid"))
		if err != nil {
			return 0, err
		}
		pid, err := strconv.Atoi(strings.Fields(string(record))[0])
		if err != nil {
			return 0, err
		}
		u, err := usageOf(pid)
		if err != nil {
			return 0, err
		}
		sum += u.cpu
	}
	return sum, nil
}
