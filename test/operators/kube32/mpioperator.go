package main

import (
	"context"

	clientset "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned"
	mpischeme "github.com/kubeflow/mpi-operator/pkg/client/clientset/versioned/scheme"
	mpiinformers "github.com/kubeflow/mpi-operator/pkg/client/informers/externalversions"
	"github.com/kubeflow/mpi-operator/pkg/controller"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"gpu-spot-autoscaler/test/operators/command"
)

const mpiWorkers = 2 // the default of the command's flag

// mpiOperator is no controller of controller-runtime: the manager only starts and ends it.
var mpiOperator = command.Operator{Queries: 5, Burst: 10, SetUp: setUpMPIOperator}

func setUpMPIOperator(_ context.Context, m ctrl.Manager) error {
	client, err := kubernetes.NewForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	jobs, err := clientset.NewForConfig(m.GetConfig())
	if err != nil {
		return err
	}
	// Its Events are recorded under this scheme.
	if err := mpischeme.AddToScheme(clientgoscheme.Scheme); err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	mpi := mpiinformers.NewSharedInformerFactory(jobs, 0)
	const everyNamespace, noGangScheduler = metav1.NamespaceAll, ""
	c, err := controller.NewMPIJobController(client, jobs, nil, nil,
		shared.Core().V1().ConfigMaps(), shared.Core().V1().Secrets(), shared.Core().V1().Services(), shared.Batch().V1().Jobs(),
		shared.Core().V1().Pods(), shared.Scheduling().V1().PriorityClasses(), mpi.Kubeflow().V2beta1().MPIJobs(),
		everyNamespace, noGangScheduler)
	if err != nil {
		return err
	}
	return m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		shared.Start(ctx.Done())
		mpi.Start(ctx.Done())
		return c.Run(mpiWorkers, ctx.Done())
	}))
}
