// Peer: the Foo controller on client-go, with the machinery of sample-controller (generated
// clientset, shared informers, listers, rate limited workqueue, event recorder) and without
// its two brakes: the client-side limit of 5 requests a second, and the informers' resync,
// which would write every status again each 30 seconds. managedFields are not cached.
package main

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"k8s.io/apimachinery/pkg/api/meta"

	"workload-operator/benches/peers/foo"
)

const never = 0

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, foo.ParseFlags()); err != nil {
		log.Fatal(err)
	}
}

// withoutManagedFields is what controller-runtime has as cache.TransformStripManagedFields.
func withoutManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}
