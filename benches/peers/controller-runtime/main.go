// Peer: the Foo controller on controller-runtime, as its documentation recommends: cached
// reads without managedFields, status changes of the Foo itself do not trigger it.
package main

import (
	"context"
	"fmt"
	"log"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"workload-operator/benches/peers/foo"
)

const owner = client.FieldOwner("controller-runtime-peer")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	logf.SetLogger(logr.Discard())
	if err := run(ctx, foo.ParseFlags()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, options foo.Options) error {
	config, err := options.Connection()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	m, err := manager.New(config, manager.Options{
		Scheme:  scheme,
		Metrics: server.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		return err
	}
	err = builder.ControllerManagedBy(m).
		For(&v1alpha1.Foo{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Owns(&appsv1.Deployment{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: options.Workers}).
		Complete(&reconciler{m.GetClient(), options.SkipUnchanged})
	if err != nil {
		return err
	}
	return m.Start(ctx)
}

type reconciler struct {
	client.Client
	skipUnchanged bool
}

func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var cached v1alpha1.Foo
	if err := r.Get(ctx, request.NamespacedName, &cached); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if cached.Spec.DeploymentName == "" {
		return reconcile.Result{}, nil
	}
	var deployment appsv1.Deployment
	key := client.ObjectKey{Namespace: cached.Namespace, Name: cached.Spec.DeploymentName}
	err := r.Get(ctx, key, &deployment)
	if apierrors.IsNotFound(err) {
		deployment = *foo.NewDeployment(&cached)
		err = r.Create(ctx, &deployment, owner)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	if !metav1.IsControlledBy(&deployment, &cached) {
		return reconcile.Result{}, fmt.Errorf("deployment %s is not managed by Foo", key)
	}
	if foo.ReplicasDiffer(&cached, &deployment) {
		deployment.Spec.Replicas = cached.Spec.Replicas
		if err := r.Update(ctx, &deployment, owner); err != nil {
			return reconcile.Result{}, err
		}
	}
	// The Go type cannot tell "absent" from 0, so that this leaves a first status of 0 unwritten.
	if r.skipUnchanged && cached.Status.AvailableReplicas == deployment.Status.AvailableReplicas {
		return reconcile.Result{}, nil
	}
	cached.Status.AvailableReplicas = deployment.Status.AvailableReplicas
	return reconcile.Result{}, r.Status().Update(ctx, &cached, owner)
}
