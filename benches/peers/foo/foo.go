// Package foo is what the two Go peers share: their flags, their connection, and the
// Deployment that a Foo asks for, field by field the one of k8s.io/sample-controller.
package foo

import (
	"flag"
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Options are the flags that every contender of the benchmark understands.
type Options struct {
	Kubeconfig string
	Workers    int
	// SkipUnchanged compares before it writes a status (and says Synced). sample-controller
	// does not; a careful author would.
	SkipUnchanged bool
}

// ParseFlags reads the command line.
func ParseFlags() Options {
	var o Options
	flag.StringVar(&o.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "path to a kubeconfig")
	flag.IntVar(&o.Workers, "workers", 8, "how many Foos are worked on at once")
	flag.BoolVar(&o.SkipUnchanged, "skip-unchanged", false, "write no status that is there already")
	flag.Parse()
	return o
}

// Connection reads the kubeconfig and switches the client-side request limit off.
func (o Options) Connection() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", o.Kubeconfig, err)
	}
	config.QPS = -1
	return config, nil
}

// NewDeployment is the Deployment that this Foo asks for.
func NewDeployment(foo *v1alpha1.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	owner := metav1.NewControllerRef(foo, v1alpha1.SchemeGroupVersion.WithKind("Foo"))
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            foo.Spec.DeploymentName,
			Namespace:       foo.Namespace,
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}},
				},
			},
		},
	}
}

// ReplicasDiffer tells whether the Deployment has to be updated.
func ReplicasDiffer(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	have := deployment.Spec.Replicas
	return foo.Spec.Replicas != nil && (have == nil || *have != *foo.Spec.Replicas)
}
