// Package operators runs the real operators of job systems beside a test cluster: their controllers, definitions and webhooks,
// as they are. Their libraries are of other versions of Kubernetes than the autoscaler's, and no one version suits all of
// them: they are built from two nested modules, kube32 and kube34, when they are first needed. An operator whose
// image has flags has the defaults of those.
//
// Each is one process that works as administrator and serves its webhooks on 127.0.0.1.
package operators

import (
	"gpu-spot-autoscaler/test/nested"
)

var (
	shared = []string{"test/operators/command"}
	kube32 = nested.Command{Name: "operators-kube32", Source: "test/operators/kube32", Shared: shared}
	kube34 = nested.Command{Name: "operators-kube34", Source: "test/operators/kube34", Shared: shared}
)

// System is a job system that an operator serves. Values are those below.
type System struct {
	// Name is the operator's.
	Name string

	command nested.Command
	module  string // the operator's Go module
	// definitions are files below the module's directory, by pattern.
	definitions []string
	// webhooks is a file below the module's directory, and patches are those that the operator's kustomization applies to it.
	webhooks string
	patches  map[kind]string
}

// kind is that of a webhook configuration.
type kind string

const (
	mutating   kind = "MutatingWebhookConfiguration"
	validating kind = "ValidatingWebhookConfiguration"
)

// The versions are in the go.mod of each nested module.
var (
	JobSet = System{
		Name: "jobset", command: kube34, module: "sigs.k8s.io/jobset",
		definitions: []string{"config/components/crd/bases/*.yaml"},
		webhooks:    "config/components/webhook/manifests.yaml",
		patches: map[kind]string{
			mutating:   "config/components/webhook/patches/mutating-patch.yaml",
			validating: "config/components/webhook/patches/validating-patch.yaml",
		},
	}
	LeaderWorkerSet = System{
		Name: "leaderworkerset", command: kube34, module: "sigs.k8s.io/lws",
		definitions: []string{"config/crd/bases/*.yaml"},
		webhooks:    "config/webhook/manifests.yaml",
		patches: map[kind]string{
			mutating:   "config/webhook/mutating-patch.yaml",
			validating: "config/webhook/validating-patch.yaml",
		},
	}
	// Trainer makes JobSets: JobSet is to be started before it.
	Trainer = System{
		Name: "trainer", command: kube34, module: "github.com/kubeflow/trainer/v2",
		definitions: []string{"manifests/base/crds/trainer.kubeflow.org_*.yaml"},
		webhooks:    "manifests/base/webhook/manifests.yaml",
	}
	// KubeRay serves no webhooks, as is its default.
	KubeRay = System{
		Name: "kuberay", command: kube34, module: "github.com/ray-project/kuberay/ray-operator",
		definitions: []string{"config/crd/bases/*.yaml"},
	}
	// Kueue has topology-aware scheduling and the replacement of failed nodes switched on, which are alpha.
	Kueue = System{
		Name: "kueue", command: kube32, module: "sigs.k8s.io/kueue",
		definitions: []string{"config/components/crd/bases/*.yaml"},
		webhooks:    "config/components/webhook/manifests.yaml",
	}
	// MPIOperator serves MPIJobs v2beta1. One cluster has it or the training operator: their definitions have one name.
	MPIOperator = System{
		Name: "mpi-operator", command: kube32, module: "github.com/kubeflow/mpi-operator",
		definitions: []string{"manifests/base/kubeflow.org_mpijobs.yaml"},
	}
	// TrainingOperator serves PyTorchJobs, MPIJobs v1 and the like.
	TrainingOperator = System{
		Name: "training-operator", command: kube32, module: "github.com/kubeflow/training-operator",
		definitions: []string{"manifests/base/crds/kubeflow.org_*.yaml"},
		webhooks:    "manifests/base/webhook/manifests.yaml",
	}
)
