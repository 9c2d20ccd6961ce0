package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/sample-controller/pkg/apis/samplecontroller/v1alpha1"

	"workload-operator/benches/peers/foo"
)

// creators is how many requests are under way at once where there is no rate to keep.
const creators = 16

func fooName(i int) string { return fmt.Sprintf("foo-%06d", i) }

func newFoo(name string) object {
	return object{
		"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
		"metadata": object{"name": name, "namespace": namespace},
		"spec":     object{"deploymentName": name, "replicas": 1},
	}
}

// An observer creates n Foos, from number first on, and watches what becomes of them. Times are
// in nanoseconds since its start; 0 means not yet.
type observer struct {
	api      *api
	first, n int
	started  time.Time
	// returned is the answer to the Foo's POST; deployed and reported are the first watch events
	// with its Deployment and its status.
	returned, deployed, reported []atomic.Int64
	left                         atomic.Int64
	done                         chan struct{}
	stop                         context.CancelFunc
}

func (a *api) observe(first, n int) *observer {
	o := &observer{
		api: a, first: first, n: n, done: make(chan struct{}),
		returned: make([]atomic.Int64, n), deployed: make([]atomic.Int64, n), reported: make([]atomic.Int64, n),
	}
	o.left.Store(2 * int64(n))
	var ctx context.Context
	ctx, o.stop = context.WithCancel(context.Background())
	go a.watch(ctx, deploymentsPath, a.version(deploymentsPath), func(e *event) { o.saw(o.deployed, e) })
	go a.watch(ctx, foosPath, a.version(foosPath), func(e *event) {
		if e.Object.Status.AvailableReplicas != nil {
			o.saw(o.reported, e)
		}
	})
	return o
}

// saw notes the first event of each of the observer's Foos.
func (o *observer) saw(times []atomic.Int64, e *event) {
	i, err := strconv.Atoi(strings.TrimPrefix(e.Object.Metadata.Name, "foo-"))
	if i -= o.first; err != nil || i < 0 || i >= o.n {
		return
	}
	if times[i].CompareAndSwap(0, o.now()) && o.left.Add(-1) == 0 {
		close(o.done)
	}
}

func (o *observer) now() int64 { return int64(time.Since(o.started)) }

// convergeLimit ends a run that would never converge.
const convergeLimit = 5 * time.Minute

// create creates the Foos as fast as the API server takes them, or with a rate one each 1/perSecond, whether or not
// earlier ones are answered. It returns when every Foo has its Deployment and its status.
func (o *observer) create(perSecond int) {
	atOnce := creators
	if perSecond > 0 {
		atOnce = o.n
	}
	o.started = time.Now()
	inParallel(atOnce, o.n, func(i int) {
		if perSecond > 0 {
			time.Sleep(time.Until(o.started.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		}
		o.api.post(foosPath+"?fieldManager=kubectl-create", newFoo(fooName(o.first+i)), &object{})
		o.returned[i].Store(o.now())
	})
	select {
	case <-o.done:
	case <-time.After(convergeLimit):
		log.Fatalf("%d of %d events are missing after %s", o.left.Load(), 2*o.n, convergeLimit)
	}
}

// span is the time from the first POST to the last event.
func (o *observer) span() (last time.Duration) {
	for i := range o.n {
		last = max(last, time.Duration(o.deployed[i].Load()), time.Duration(o.reported[i].Load()))
	}
	return last
}

// latencies are the times from a POST's answer until a watch showed the Deployment, sorted, in
// milliseconds. The watch may be faster than the answer, which counts as 0.
func (o *observer) latencies() []float64 {
	var ms []float64
	for i := range o.n {
		ms = append(ms, max(0, float64(o.deployed[i].Load()-o.returned[i].Load())/1e6))
	}
	slices.Sort(ms)
	return ms
}

// follow changes the status of one Deployment after the other. It returns the times from the answer until a watch
// showed the Foo's status, sorted, in milliseconds.
func (a *api) follow(first, n int) (ms []float64) {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	followed := make(chan string, n)
	go a.watch(ctx, foosPath, a.version(foosPath), func(e *event) {
		if available := e.Object.Status.AvailableReplicas; available != nil && *available == 1 {
			followed <- e.Object.Metadata.Name
		}
	})
	for i := first; i < first+n; i++ {
		a.call("PATCH", deploymentsPath+"/"+fooName(i)+"/status", merge,
			[]byte(`{"status":{"replicas":1,"readyReplicas":1,"availableReplicas":1}}`))
		answered := time.Now()
		for name := range followed {
			if name == fooName(i) {
				break
			}
		}
		ms = append(ms, float64(time.Since(answered))/1e6)
		time.Sleep(20 * time.Millisecond) // Nothing else happens.
	}
	slices.Sort(ms)
	return ms
}

// An event is the part of a watch event that is looked at.
type event struct {
	Type   string
	Object struct {
		Message  string // of an error
		Metadata struct{ Name, ResourceVersion string }
		Status   struct{ AvailableReplicas *int32 }
	}
}

// version is the one of a whole list, for a watch from here on.
func (a *api) version(path string) string {
	var list event
	a.get(path+"?limit=1", &list.Object)
	return list.Object.Metadata.ResourceVersion
}

// watch calls handle for each event until ctx ends. The API server ends a watch that reads too slowly; it goes on
// behind the last event.
func (a *api) watch(ctx context.Context, path, from string, handle func(*event)) {
	for ctx.Err() == nil {
		stream, err := a.Get().RequestURI(path + "?watch=1&timeoutSeconds=3600&resourceVersion=" + from).Stream(ctx)
		if ctx.Err() != nil {
			return
		}
		check(err)
		events := json.NewDecoder(stream)
		for e := new(event); events.Decode(e) == nil; e = new(event) {
			if e.Type == "ERROR" {
				log.Fatalf("the watch of %s was lost: %s", path, e.Object.Message)
			}
			from = e.Object.Metadata.ResourceVersion
			handle(e)
		}
		stream.Close()
	}
}

// putInPlace creates n Foos as a controller leaves them: with their Deployments and statuses.
func (a *api) putInPlace(n int) {
	inParallel(creators, n, func(i int) {
		var made v1alpha1.Foo
		a.post(foosPath+"?fieldManager=kubectl-create", newFoo(fooName(i)), &made)
		a.post(deploymentsPath+"?fieldManager=sample-controller", foo.NewDeployment(&made), &object{})
		a.call("PATCH", foosPath+"/"+made.Name+"/status?fieldManager=sample-controller", merge,
			[]byte(`{"status":{"availableReplicas":0}}`))
	})
}

// inParallel does something for the numbers 0..n-1, so many at once.
func inParallel(atOnce, n int, do func(i int)) {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := range n {
		group.Go(func() error {
			do(i)
			return nil
		})
	}
	_ = group.Wait()
}
