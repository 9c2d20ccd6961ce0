package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
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
	begun    int64 // when the first POST was sent
	// returned is the answer to the Foo's POST; deployed and reported are the first watch events
	// with its Deployment and its status.
	returned, deployed, reported []atomic.Int64
	left                         atomic.Int64
	done                         chan struct{}
	lost                         chan error // takes one error of each watch
	stop                         context.CancelFunc
}

func (a *api) observe(first, n int) *observer {
	o := &observer{
		api: a, first: first, n: n, started: time.Now(), done: make(chan struct{}), lost: make(chan error, 2),
		returned: make([]atomic.Int64, n), deployed: make([]atomic.Int64, n), reported: make([]atomic.Int64, n),
	}
	o.left.Store(2 * int64(n))
	var ctx context.Context
	ctx, o.stop = context.WithCancel(a.ctx)
	foos := func(e *event) {
		if e.Object.Status.AvailableReplicas != nil {
			o.saw(o.reported, e)
		}
	}
	deployments := func(e *event) { o.saw(o.deployed, e) }
	for path, handle := range map[string]func(*event){foosPath: foos, deploymentsPath: deployments} {
		var list event
		check(json.Unmarshal(must(a.get(path+"?limit=1")), &list.Object))
		go func() { o.lost <- a.watch(ctx, path, list.Object.Metadata.ResourceVersion, handle) }()
	}
	return o
}

// saw notes the first event of each of the observer's Foos.
func (o *observer) saw(times []atomic.Int64, e *event) {
	digits, isFoo := strings.CutPrefix(e.Object.Metadata.Name, "foo-")
	i, err := strconv.Atoi(digits)
	if i -= o.first; !isFoo || err != nil || i < 0 || i >= o.n {
		return
	}
	if times[i].CompareAndSwap(0, o.now()) && o.left.Add(-1) == 0 {
		close(o.done)
	}
}

func (o *observer) now() int64 { return int64(time.Since(o.started)) }

// create creates the Foos as fast as the API server takes them, or with a rate one each
// 1/perSecond, whether or not earlier ones are answered.
func (o *observer) create(perSecond int) error {
	group, ctx := errgroup.WithContext(o.api.ctx)
	if perSecond == 0 {
		group.SetLimit(creators)
	}
	begin := time.Now()
	o.begun = o.now()
	for i := 0; i < o.n && ctx.Err() == nil; i++ {
		if perSecond > 0 {
			time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		}
		group.Go(func() error {
			err := o.api.post(foosPath+"?fieldManager=kubectl-create", newFoo(fooName(o.first+i)), nil)
			o.returned[i].Store(o.now())
			return err
		})
	}
	return group.Wait()
}

// convergeLimit ends a run that would never converge.
const convergeLimit = 5 * time.Minute

// wait returns when every Foo has its Deployment and its status, or when the contender has ended.
func (o *observer) wait(ended <-chan struct{}) error {
	select {
	case <-o.done:
		return nil
	case <-ended:
		return errors.New("the contender ended by itself")
	case err := <-o.lost:
		return err
	case <-time.After(convergeLimit):
		return fmt.Errorf("%d of %d events are missing after %s", o.left.Load(), 2*o.n, convergeLimit)
	}
}

// span is the time from the first POST to the last event.
func (o *observer) span() time.Duration {
	last := o.begun
	for i := range o.n {
		last = max(last, o.deployed[i].Load(), o.reported[i].Load())
	}
	return time.Duration(last - o.begun)
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

// An event is the part of a watch event that is looked at.
type event struct {
	Type   string
	Object struct {
		Message  string // of an error
		Metadata struct{ Name, ResourceVersion string }
		Status   struct{ AvailableReplicas *int32 }
	}
}

// watch calls handle for each event until it fails. The API server ends a watch that reads too slowly; it goes on
// behind the last event.
func (a *api) watch(ctx context.Context, path, from string, handle func(*event)) error {
	for {
		stream, err := a.client.Get().RequestURI(path + "?watch=1&timeoutSeconds=3600&resourceVersion=" + from).Stream(ctx)
		if err != nil {
			return fmt.Errorf("the watch of %s was lost: %w", path, err)
		}
		events := json.NewDecoder(stream)
		for e := new(event); events.Decode(e) == nil; e = new(event) {
			if e.Type == "ERROR" {
				return fmt.Errorf("the watch of %s was lost: %s", path, e.Object.Message)
			}
			from = e.Object.Metadata.ResourceVersion
			handle(e)
		}
		stream.Close()
	}
}

// putInPlace creates n Foos as a controller leaves them: with their Deployments and statuses.
func (a *api) putInPlace(n int) error {
	return inParallel(creators, n, func(i int) error {
		var made v1alpha1.Foo
		if err := a.post(foosPath+"?fieldManager=kubectl-create", newFoo(fooName(i)), &made); err != nil {
			return err
		}
		if err := a.post(deploymentsPath+"?fieldManager=sample-controller", foo.NewDeployment(&made), nil); err != nil {
			return err
		}
		_, err := a.call("PATCH", foosPath+"/"+made.Name+"/status?fieldManager=sample-controller",
			string(types.MergePatchType), []byte(`{"status":{"availableReplicas":0}}`))
		return err
	})
}

// inParallel does something for the numbers 0..n-1, several at once, until one fails.
func inParallel(atOnce, n int, do func(i int) error) error {
	group, ctx := errgroup.WithContext(context.Background())
	group.SetLimit(atOnce)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		group.Go(func() error { return do(i) })
	}
	return group.Wait()
}
