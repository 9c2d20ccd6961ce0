package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// creators is how many requests the load generator has under way when it does not keep a rate.
const creators = 16

func fooName(i int) string { return fmt.Sprintf("foo-%06d", i) }

func fooIndex(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "foo-")
	if !ok {
		return 0, false
	}
	i, err := strconv.Atoi(digits)
	return i, err == nil
}

func newFoo(name string) object {
	return object{
		"apiVersion": "samplecontroller.k8s.io/v1alpha1", "kind": "Foo",
		"metadata": object{"name": name, "namespace": namespace},
		"spec":     object{"deploymentName": name, "replicas": 1},
	}
}

// each runs one task per number from..to-1, creators at a time, and gives up at the first error.
func each(from, to int, task func(i int) error) error {
	var next, failed atomic.Int64
	next.Store(int64(from))
	var running sync.WaitGroup
	var first sync.Once
	var result error
	for range creators {
		running.Go(func() {
			for failed.Load() == 0 {
				i := int(next.Add(1) - 1)
				if i >= to {
					return
				}
				if err := task(i); err != nil {
					failed.Store(1)
					first.Do(func() { result = err })
				}
			}
		})
	}
	running.Wait()
	return result
}

// empty takes all Foos and Deployments away.
func (a *api) empty() error {
	for _, path := range []string{foosPath, deploymentsPath} {
		if _, err := a.call("DELETE", path+"?propagationPolicy=Background", "", nil); err != nil {
			return err
		}
	}
	return nil
}

// An observer watches what becomes of n Foos, from number first on. Times are in nanoseconds since its start; 0 means
// not yet.
type observer struct {
	first   int
	started time.Time
	// sent and returned are of the Foo's POST; deployed and reported of the first watch event
	// that showed its Deployment and its status.
	sent, returned, deployed, reported []atomic.Int64
	left                               atomic.Int64
	done                               chan struct{}
	// lost takes why a watch could not go on, once from each of the two.
	lost chan error
	stop context.CancelFunc
}

func (a *api) observe(first, n int) (*observer, error) {
	o := &observer{
		first: first, started: time.Now(), done: make(chan struct{}), lost: make(chan error, 2),
		sent: make([]atomic.Int64, n), returned: make([]atomic.Int64, n),
		deployed: make([]atomic.Int64, n), reported: make([]atomic.Int64, n),
	}
	o.left.Store(2 * int64(n))
	var ctx context.Context
	ctx, o.stop = context.WithCancel(a.ctx)
	for _, path := range []string{foosPath, deploymentsPath} {
		from, err := a.version(path)
		if err != nil {
			return nil, err
		}
		times, isFoo := o.deployed, path == foosPath
		if isFoo {
			times = o.reported
		}
		err = a.watch(ctx, path, from, func(event *seen) {
			i, ok := fooIndex(event.Object.Metadata.Name)
			i -= first
			if !ok || i < 0 || i >= n || (isFoo && event.Object.Status.AvailableReplicas == nil) {
				return
			}
			if times[i].CompareAndSwap(0, o.now()) && o.left.Add(-1) == 0 {
				close(o.done)
			}
		}, func(err error) { o.lost <- err })
		if err != nil {
			return nil, err
		}
	}
	return o, nil
}

func (o *observer) now() int64 { return int64(time.Since(o.started)) }

func (o *observer) create(a *api, i int) error {
	o.sent[i].Store(o.now())
	_, err := a.post(foosPath+"?fieldManager=kubectl-create", newFoo(fooName(o.first+i)))
	o.returned[i].Store(o.now())
	return err
}

// createAll makes the Foos as fast as the API server takes them.
func (o *observer) createAll(a *api) error {
	return each(0, len(o.sent), func(i int) error { return o.create(a, i) })
}

// createAtRate starts a request each 1/perSecond, whether or not earlier ones are answered.
func (o *observer) createAtRate(a *api, perSecond int) error {
	var running sync.WaitGroup
	failures := make(chan error, len(o.sent))
	begin := time.Now()
	for i := range o.sent {
		time.Sleep(time.Until(begin.Add(time.Duration(i) * time.Second / time.Duration(perSecond))))
		running.Go(func() {
			if err := o.create(a, i); err != nil {
				failures <- err
			}
		})
	}
	running.Wait()
	close(failures)
	return <-failures
}

// converged is how many Foos have both their Deployment and their status.
func (o *observer) converged() int {
	n := 0
	for i := range o.deployed {
		if o.deployed[i].Load() != 0 && o.reported[i].Load() != 0 {
			n++
		}
	}
	return n
}

// span is the time from the first POST to the last event.
func (o *observer) span() time.Duration {
	first, last := int64(1)<<62, int64(0)
	for i := range o.sent {
		first = min(first, o.sent[i].Load())
		last = max(last, o.deployed[i].Load(), o.reported[i].Load())
	}
	return time.Duration(last - first)
}

// latencies from `begin` until the Deployment was seen, in milliseconds. The watch may be faster
// than the answer to the POST; that counts as 0.
func (o *observer) latencies(begin []atomic.Int64) []float64 {
	var ms []float64
	for i := range begin {
		if seen := o.deployed[i].Load(); seen != 0 {
			ms = append(ms, max(0, float64(seen-begin[i].Load())/1e6))
		}
	}
	return ms
}

var errNotConverged = errors.New("not converged in time")

func (o *observer) wait(a *api, limit time.Duration) error {
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-o.done:
		return nil
	case err := <-o.lost:
		return err
	case <-a.ctx.Done():
		return a.ctx.Err()
	case <-timeout.C:
		return errNotConverged
	}
}
