package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"k8s.io/sample-controller/pkg/generated/clientset/versioned"
	samplescheme "k8s.io/sample-controller/pkg/generated/clientset/versioned/scheme"
	"k8s.io/sample-controller/pkg/generated/informers/externalversions"
	samplelisters "k8s.io/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"

	"workload-operator/benches/peers/foo"
)

const manager = "client-go-peer"

type controller struct {
	kube          kubernetes.Interface
	sample        versioned.Interface
	deployments   appslisters.DeploymentLister
	foos          samplelisters.FooLister
	queue         workqueue.TypedRateLimitingInterface[cache.ObjectName]
	recorder      record.EventRecorder
	skipUnchanged bool
}

func run(ctx context.Context, options foo.Options) error {
	config, err := options.Connection()
	if err != nil {
		return err
	}
	kube, sample := kubernetes.NewForConfigOrDie(config), versioned.NewForConfigOrDie(config)
	kubeInformers := informers.NewSharedInformerFactoryWithOptions(kube, never, informers.WithTransform(withoutManagedFields))
	sampleInformers := externalversions.NewSharedInformerFactoryWithOptions(sample, never,
		externalversions.WithTransform(withoutManagedFields))
	deployments, foos := kubeInformers.Apps().V1().Deployments(), sampleInformers.Samplecontroller().V1alpha1().Foos()
	utilruntime.Must(samplescheme.AddToScheme(scheme.Scheme))
	events := record.NewBroadcaster(record.WithContext(ctx))
	events.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kube.CoreV1().Events("")})
	c := &controller{
		kube:        kube,
		sample:      sample,
		deployments: deployments.Lister(),
		foos:        foos.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedMaxOfRateLimiter(
			workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](5*time.Millisecond, 1000*time.Second),
			&workqueue.TypedBucketRateLimiter[cache.ObjectName]{Limiter: rate.NewLimiter(50, 300)},
		)),
		recorder:      events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: manager}),
		skipUnchanged: options.SkipUnchanged,
	}
	_, err = foos.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, foo any) { c.enqueue(foo) },
	})
	if err != nil {
		return err
	}
	_, err = deployments.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueueOwner,
		UpdateFunc: c.enqueueOwnerOfChanged,
		DeleteFunc: c.enqueueOwner,
	})
	if err != nil {
		return err
	}
	kubeInformers.Start(ctx.Done())
	sampleInformers.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), deployments.Informer().HasSynced, foos.Informer().HasSynced) {
		return errors.New("stopped before the caches were filled")
	}
	return c.work(ctx, options.Workers)
}

func (c *controller) enqueue(object any) {
	name, err := cache.ObjectToName(object)
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	c.queue.Add(name)
}

func (c *controller) enqueueOwnerOfChanged(old, new any) {
	if old.(*appsv1.Deployment).ResourceVersion != new.(*appsv1.Deployment).ResourceVersion {
		c.enqueueOwner(new)
	}
}

func (c *controller) enqueueOwner(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	child, ok := object.(metav1.Object)
	if !ok {
		return
	}
	owner := metav1.GetControllerOf(child)
	if owner == nil || owner.Kind != "Foo" {
		return
	}
	if foo, err := c.foos.Foos(child.GetNamespace()).Get(owner.Name); err == nil {
		c.enqueue(foo)
	}
}

func (c *controller) work(ctx context.Context, workers int) error {
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	running.Wait()
	return nil
}

func (c *controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.sync(ctx, name); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "sync failed", "foo", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

func (c *controller) sync(ctx context.Context, name cache.ObjectName) error {
	cached, err := c.foos.Foos(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if cached.Spec.DeploymentName == "" {
		return nil
	}
	client := c.kube.AppsV1().Deployments(name.Namespace)
	deployment, err := c.deployments.Deployments(name.Namespace).Get(cached.Spec.DeploymentName)
	if apierrors.IsNotFound(err) {
		deployment, err = client.Create(ctx, foo.NewDeployment(cached), metav1.CreateOptions{FieldManager: manager})
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(deployment, cached) {
		message := fmt.Sprintf("Resource %q already exists and is not managed by Foo", deployment.Name)
		c.recorder.Event(cached, corev1.EventTypeWarning, "ErrResourceExists", message)
		return errors.New(message)
	}
	if foo.ReplicasDiffer(cached, deployment) {
		deployment, err = client.Update(ctx, foo.NewDeployment(cached), metav1.UpdateOptions{FieldManager: manager})
		if err != nil {
			return err
		}
	}
	return c.writeStatus(ctx, cached, deployment)
}

func (c *controller) writeStatus(ctx context.Context, cached *v1alpha1.Foo, deployment *appsv1.Deployment) error {
	// The Go type cannot tell "absent" from 0, so that this leaves a first status of 0 unwritten.
	if c.skipUnchanged && cached.Status.AvailableReplicas == deployment.Status.AvailableReplicas {
		return nil
	}
	changed := cached.DeepCopy()
	changed.Status.AvailableReplicas = deployment.Status.AvailableReplicas
	_, err := c.sample.SamplecontrollerV1alpha1().Foos(changed.Namespace).
		UpdateStatus(ctx, changed, metav1.UpdateOptions{FieldManager: manager})
	if err != nil {
		return err
	}
	c.recorder.Event(cached, corev1.EventTypeNormal, "Synced", "Foo synced successfully")
	return nil
}
