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
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/sample-controller/pkg/generated/clientset/versioned"
	"k8s.io/sample-controller/pkg/generated/informers/externalversions"

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

func run(ctx context.Context, options foo.Options) error {
	config, err := options.Connection()
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	sample, err := versioned.NewForConfig(config)
	if err != nil {
		return err
	}
	kubeInformers := informers.NewSharedInformerFactoryWithOptions(kube, never,
		informers.WithTransform(withoutManagedFields))
	sampleInformers := externalversions.NewSharedInformerFactoryWithOptions(sample, never,
		externalversions.WithTransform(withoutManagedFields))
	c, err := newController(ctx, kube, sample,
		kubeInformers.Apps().V1().Deployments(),
		sampleInformers.Samplecontroller().V1alpha1().Foos(),
		options.SkipUnchanged)
	if err != nil {
		return err
	}
	kubeInformers.Start(ctx.Done())
	sampleInformers.Start(ctx.Done())
	return c.run(ctx, options.Workers)
}

// withoutManagedFields is what controller-runtime has as cache.TransformStripManagedFields.
func withoutManagedFields(object any) (any, error) {
	if o, err := meta.Accessor(object); err == nil {
		o.SetManagedFields(nil)
	}
	return object, nil
}
