// Package queues measures the peers' work queues alone, as benches/workqueue.rs measures ours:
// 100,000 keys of 100 namespaces wait, and so many workers each get a key, forget its failures,
// call it done and add it again. Time per round.
package queues

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
)

const (
	backlog    = 100_000
	namespaces = 100
	// batch: rounds that a worker takes at once, so that the counter is not what is measured.
	batch = 100
)

type queue = workqueue.TypedRateLimitingInterface[cache.ObjectName]

func BenchmarkQueue(b *testing.B) {
	for name, create := range map[string]func() queue{
		"client-go": func() queue {
			return workqueue.NewTypedRateLimitingQueue(
				workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, 1000*time.Second))
		},
		"controller-runtime": func() queue { return priorityqueue.New[cache.ObjectName]("bench") },
	} {
		for _, workers := range []int{1, 4, 16} {
			b.Run(fmt.Sprintf("%s/workers=%d", name, workers), func(b *testing.B) {
				q := create()
				defer q.ShutDown()
				fill(q)
				b.ResetTimer()
				rounds(q, workers, b.N)
			})
		}
	}
}

func fill(q queue) {
	for i := range backlog {
		q.Add(cache.ObjectName{Namespace: fmt.Sprintf("namespace-%d", i%namespaces), Name: fmt.Sprintf("object-%d", i)})
	}
	for q.Len() < backlog { // a priorityqueue takes them in by and by
		time.Sleep(time.Millisecond)
	}
}

func rounds(q queue, workers, n int) {
	var left atomic.Int64
	left.Store(int64(n))
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for {
				todo := min(left.Add(-batch)+batch, batch)
				if todo <= 0 {
					return
				}
				for range todo {
					key, _ := q.Get()
					q.Forget(key)
					q.Done(key)
					q.Add(key)
				}
			}
		})
	}
	running.Wait()
}
