package main

import (
	"encoding/json"
	"fmt"
	"log"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
)

const (
	senders    = 6 // connections
	manager    = "ours"
	byManager  = "?fieldManager=" + manager
	ofStatus   = "/status" + byManager
	eventsPath = "/apis/events.k8s.io/v1/namespaces/" + namespace + "/events"

	inJSON    = "application/json"
	jsonPatch = string(types.JSONPatchType)
	merge     = string(types.MergePatchType)
	strategic = string(types.StrategicMergePatchType)
	apply     = string(types.ApplyYAMLPatchType)
)

// A cost is what requests are measured for: some for each of many objects.
type cost struct {
	title string // "": not measured, for others to build on
	steps []step
}

// A step sends the request for object number i.
type step func(i int)

// measureRequests measures what requests cost the API server and etcd.
func (b *bench) measureRequests() {
	cp := b.startControlPlane()
	defer cp.stop()
	p := &player{api: cp.api}
	for _, c := range append(p.singles(), p.lives()...) {
		time.Sleep(time.Second) // The servers settle.
		api, etcd := cp.cpu("kube-apiserver"), cp.cpu("etcd")
		// Each step is sent for all objects before the next: an object's writes in a row would meet a stale cache.
		for _, step := range c.steps {
			inParallel(senders, b.requests, step)
		}
		each := func(used time.Duration) float64 { return used.Seconds() * 1000 / float64(b.requests) }
		if c.title != "" {
			metrics := map[string]float64{"api_ms": each(cp.cpu("kube-apiserver") - api), "etcd_ms": each(cp.cpu("etcd") - etcd)}
			b.record(result{Part: "requests", Request: c.title, Metrics: metrics}, "api_ms", "etcd_ms")
		}
	}
}

// requestsTable has a caption, and nothing without results.
func (b *bench) requestsTable() string {
	text := ""
	for _, r := range b.results {
		if r.Part == "requests" {
			text += fmt.Sprintf("| %s | %.2f | %.2f |\n", r.Request, r.Metrics["api_ms"], r.Metrics["etcd_ms"])
		}
	}
	if text == "" {
		return ""
	}
	return fmt.Sprintf("| request | API server ms | etcd ms |\n|---|---|---|\n%s\n"+
		"CPU time of one, from %s of each sent over %d connections. Taken on %s.\n", text, thousands(b.requests), senders, b.takenOn)
}

// A player sends requests and keeps the last answer about each object.
type player struct {
	*api
	answers sync.Map
}

// send returns a step. An object's name begins with kind and decides the body, if there is one.
func (p *player) send(verb, contentType, path, options, kind string, body func(name string) any) step {
	return func(i int) {
		name := fmt.Sprintf("%s-%06d", kind, i)
		uri := path + "/" + name + options
		if verb == "POST" {
			uri = path + options
		}
		var text []byte
		if body != nil {
			text = must(json.Marshal(body(name)))
		}
		p.answers.Store(name, p.call(verb, uri, contentType, text))
	}
}

func (p *player) singles() []cost {
	one := func(title string, s step) cost { return cost{title, []step{s}} }
	status := func(verb, contentType string, body func(string) any) step {
		return p.send(verb, contentType, foosPath, ofStatus, "foo", body)
	}
	available := func(n int) func(string) any {
		return func(string) any { return object{"status": object{"availableReplicas": n}} }
	}
	return []cost{
		one("POST of a Foo", p.send("POST", inJSON, foosPath, byManager, "foo", func(name string) any { return newFoo(name) })),
		one("POST of a Deployment", p.post("posted")),
		one("apply that creates a Deployment", p.apply("applied", 0, true)),
		one("apply that changes a field", p.apply("applied", 1, true)),
		one("apply that removes a field", p.apply("applied", 1, false)),
		one("apply that changes nothing", p.apply("applied", 1, false)),
		one("first apply after a POST, changes a field", p.apply("posted", 1, true)),
		one("", p.post("upgraded")),
		one("JSON patch that makes the owner of a POST one of an apply", p.upgrade("upgraded")),
		one("", p.post("plain")),
		one("merge patch of one field of a Deployment", p.patch(merge, "plain", containers(1))),
		one("strategic merge patch of one field", p.patch(strategic, "plain", containers(2))),
		one("PUT of a Deployment, changes a field", p.send("PUT", inJSON, deploymentsPath, byManager, "plain", deployed(3, true))),
		one("GET of a Deployment", p.get("plain")),
		one("DELETE of a Deployment", p.delete("plain")),
		one("merge patch of a Foo's status", status("PATCH", merge, available(1))),
		one("PUT of a Foo's status", status("PUT", inJSON, func(name string) any {
			var foo object
			p.last(name, &foo)
			foo["status"] = object{"availableReplicas": 2}
			return foo
		})),
		one("apply of a Foo's status", p.send("PATCH", apply, foosPath, ofStatus+"&force=true", "foo", func(name string) any {
			foo := newFoo(name)
			delete(foo, "spec")
			foo["status"] = object{"availableReplicas": 3}
			return foo
		})),
		one("merge patch of a Foo's status that changes nothing", status("PATCH", merge, available(3))),
		one("POST of an Event", p.send("POST", inJSON, eventsPath, byManager, "event", newEvent)),
	}
}

// lives are those of a Deployment: create, three edits of a field, an edit that removes one, delete.
func (p *player) lives() []cost {
	noNote := object{"metadata": object{"annotations": object{"note": nil}}}
	return []cost{
		{"life: apply throughout (6 requests)", []step{
			p.apply("a", 0, true), p.apply("a", 1, true), p.apply("a", 2, true), p.apply("a", 3, true),
			p.apply("a", 3, false), p.verify("a"), p.delete("a")}},
		{"life: POST, then GET and JSON patch, then apply (8 requests)", []step{
			p.post("b"), p.get("b"), p.upgrade("b"), p.apply("b", 1, true), p.apply("b", 2, true), p.apply("b", 3, true),
			p.apply("b", 3, false), p.verify("b"), p.delete("b")}},
		{"life: POST, then merge patches of what changes (6 requests)", []step{
			p.post("c"), p.patch(merge, "c", containers(1)), p.patch(merge, "c", containers(2)),
			p.patch(merge, "c", containers(3)), p.patch(merge, "c", noNote), p.verify("c"), p.delete("c")}},
	}
}

func (p *player) post(kind string) step {
	return p.send("POST", inJSON, deploymentsPath, byManager, kind, deployed(0, true))
}

func (p *player) apply(kind string, version int, note bool) step {
	return p.send("PATCH", apply, deploymentsPath, byManager+"&force=true", kind, deployed(version, note))
}

func (p *player) patch(contentType, kind string, template object) step {
	return p.send("PATCH", contentType, deploymentsPath, byManager, kind, func(string) any {
		return object{"spec": object{"template": template}}
	})
}

func (p *player) get(kind string) step { return p.send("GET", "", deploymentsPath, "", kind, nil) }

func (p *player) delete(kind string) step {
	return p.send("DELETE", inJSON, deploymentsPath, "", kind, func(string) any {
		return object{"propagationPolicy": "Background"}
	})
}

// upgrade moves what the manager's POST owns to its apply, as kubectl does, from the last answer.
func (p *player) upgrade(kind string) step {
	return p.send("PATCH", jsonPatch, deploymentsPath, byManager, kind, func(name string) any {
		var made appsv1.Deployment
		p.last(name, &made)
		return json.RawMessage(must(csaupgrade.UpgradeManagedFieldsPatch(&made, sets.New(manager), manager)))
	})
}

// verify ends the program if the first object of a kind still has the note, or not the last image.
func (p *player) verify(kind string) step {
	return func(i int) {
		if i > 0 {
			return
		}
		stored := string(p.call("GET", fmt.Sprintf("%s/%s-%06d", deploymentsPath, kind, i), "", nil))
		if strings.Contains(stored, `"note":"yes"`) || !strings.Contains(stored, `"nginx:3"`) {
			log.Fatalf("the edits are not what is stored: %s", stored)
		}
	}
}

func (p *player) last(name string, into any) {
	answer, _ := p.answers.Load(name)
	check(json.Unmarshal(answer.([]byte), into))
}

// deployed is the body of a Deployment with a version of its image, and a note that can be removed.
func deployed(version int, note bool) func(name string) any {
	return func(name string) any {
		spec := deploymentSpec(name, fmt.Sprintf("nginx:%d", version))
		if note {
			spec["template"].(object)["metadata"].(object)["annotations"] = object{"note": "yes"}
		}
		owner := object{"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo", "name": name, "uid": "of-" + name,
			"controller": true, "blockOwnerDeletion": true}
		metadata := object{"name": name, "ownerReferences": []object{owner}}
		return object{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
	}
}

func containers(version int) object {
	return object{"spec": object{"containers": []object{{"name": "nginx", "image": fmt.Sprintf("nginx:%d", version)}}}}
}

func newEvent(name string) any {
	return object{
		"metadata": object{"name": name, "namespace": namespace}, "eventTime": "2026-01-01T00:00:00.000000Z",
		"reportingController": manager, "reportingInstance": manager, "action": "Created", "reason": "Created", "type": "Normal",
		"note": "created the Deployment", "regarding": object{"kind": "Foo", "name": name, "namespace": namespace},
	}
}
