package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/templates"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/ledger"
	"gpu-spot-autoscaler/pricing/market"
)

const (
	// ledgerSuffix and marketSuffix are appended to the name of the Deployment, for the names of the ConfigMaps with the cost ledger and with
	// what is remembered of the market.
	ledgerSuffix, marketSuffix = "-ledger", "-market"
	// stateKey is the key in their binary data.
	stateKey = "state.json.gz"
	// jobLookup bounds the request for a job that has ended.
	jobLookup = 10 * time.Second
)

// newLedger returns the cost ledger.
func newLedger(config *Config, p *parts, view *cluster.Cluster, recorder record.EventRecorder, events templates.EventSink) *ledger.Ledger {
	return ledger.New(ledger.Config{
		Inventory: &inventory{provider: p.provider, cluster: view}, Prices: p.prices, Clock: config.Clock,
		Store: newStateStore(config, ledgerSuffix),
		Ended: (&costEvents{jobs: p.jobs, recorder: recorder}).ended,
		Corrupt: func(err error) {
			events.Eventf(corev1.EventTypeWarning, "SpotLedgerUnreadable", "Costs are counted anew from now on: %v", err)
		},
	})
}

// newKeeper returns what fills and keeps the memory of the market.
func newKeeper(config *Config, memory *market.Memory, provider *ess.Provider, events templates.EventSink) *market.Keeper {
	return &market.Keeper{
		Memory: memory, Store: newStateStore(config, marketSuffix), Clock: config.Clock,
		Instances: func() (spot []market.Living, at time.Time) {
			instances, at := provider.Instances()
			for _, i := range instances {
				if i.Offering.Spot {
					spot = append(spot, market.Living{ID: i.ID, Offering: i.Offering, Reclaiming: i.Reclaiming})
				}
			}
			return spot, at
		},
		Corrupt: func(err error) {
			events.Eventf(corev1.EventTypeWarning, "SpotMarketForgotten", "How reliable offerings are is learnt anew: %v", err)
		},
	}
}

// inventory has the instances of all pools, and the parts of them that the pods of each job request.
type inventory struct {
	provider *ess.Provider
	cluster  *cluster.Cluster
}

// Instances implements ledger.Inventory.
func (v *inventory) Instances() ([]ledger.Instance, time.Time) {
	instances, at := v.provider.Instances()
	for i := range instances {
		for _, node := range v.cluster.NodesOf(instances[i].ID) {
			instances[i].Shares = append(instances[i].Shares, v.shares(node, instances[i].GPUs)...)
		}
	}
	return instances, at
}

// shares returns the parts of a node that its pods request: of its GPUs, or of its CPUs if it has no GPU.
func (v *inventory) shares(node *corev1.Node, gpus float64) (shares []ledger.Share) {
	cpus := node.Status.Allocatable.Cpu().AsApproximateFloat64()
	for _, pod := range cluster.Drainable(v.cluster.PodsOn(node.Name)) {
		demand := pricing.DemandOf(pod)
		part := 0.
		switch {
		case gpus > 0:
			part = demand.GPUs / gpus
		case cpus > 0:
			part = demand.CPUs / cpus
		}
		if part > 0 {
			ref := v.cluster.PartyOf(pod).Ref
			shares = append(shares, ledger.Share{Part: part, Job: ledger.Job{Namespace: ref.Namespace, System: ref.System, Name: ref.Name}})
		}
	}
	return shares
}

// stateStore keeps a state in a ConfigMap. It is not safe for concurrent use.
type stateStore struct {
	client          kubernetes.Interface
	namespace, name string
	// version is that of the ConfigMap that was read or written last, so that a process that has lost its lease overwrites nothing.
	version string
}

func newStateStore(config *Config, suffix string) *stateStore {
	return &stateStore{client: config.Kube, namespace: config.Autoscaling.ConfigNamespace, name: config.DeploymentName + suffix}
}

// Load implements ledger.Store and market.Store.
func (s *stateStore) Load(ctx context.Context) ([]byte, error) {
	configMap, err := s.client.CoreV1().ConfigMaps(s.namespace).Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		s.version = ""
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.version = configMap.ResourceVersion
	return configMap.BinaryData[stateKey], nil
}

// Save implements ledger.Store and market.Store. A ConfigMap that somebody has made or deleted since is a conflict too.
func (s *stateStore) Save(ctx context.Context, state []byte) error {
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, ResourceVersion: s.version},
		BinaryData: map[string][]byte{stateKey: state},
	}
	configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
	var written *corev1.ConfigMap
	var err error
	if s.version == "" {
		written, err = configMaps.Create(ctx, configMap, metav1.CreateOptions{})
	} else {
		written, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
	}
	switch {
	case err == nil:
		s.version = written.ResourceVersion
	case apierrors.IsAlreadyExists(err):
		return apierrors.NewConflict(corev1.Resource("configmaps"), s.name, err)
	case apierrors.IsNotFound(err):
		s.version = "" // what is in memory is all there is
	}
	return err
}

// costEvents tells each job at its end what it cost.
type costEvents struct {
	jobs interface {
		Get(context.Context, jobs.Ref) (jobs.Job, error)
	}
	recorder record.EventRecorder
}

// ended records an Event on the job's object, unless it is gone or the job is to run again.
func (e *costEvents) ended(ctx context.Context, job ledger.Job, cost ledger.Amounts, currency string) {
	if job.System == jobs.SystemPod {
		return // there is no object
	}
	ctx, cancel := context.WithTimeout(ctx, jobLookup)
	defer cancel()
	found, err := e.jobs.Get(ctx, jobs.NewRef(job.System, job.Namespace, job.Name))
	switch {
	case errors.Is(err, jobs.ErrNoObject):
		return
	case err != nil:
		klog.FromContext(ctx).Error(err, "Cannot tell a job what it cost", "job", job)
		return
	}
	if found.Finished && found.Object != nil {
		e.recorder.Event(found.Object, corev1.EventTypeNormal, "SpotCost", costOf(cost, currency))
	}
}

// costOf says what a job cost.
func costOf(cost ledger.Amounts, currency string) string {
	return fmt.Sprintf("The job cost %s for %.1f GPU-hours; on demand it would have been %s",
		pricing.Amount(cost.Cost, currency), cost.GPUHours, pricing.Amount(cost.OnDemand, currency))
}
