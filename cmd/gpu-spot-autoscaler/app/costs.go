package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/klog/v2"
	kubepod "k8s.io/kubernetes/pkg/api/v1/pod"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/processors"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/ledger"
	"gpu-spot-autoscaler/pricing/market"
)

const (
	// asideKey is the key of a state that cannot be used, beside options.StateKey.
	asideKey = "set-aside"
	// jobLookup bounds the request for a job that has ended.
	jobLookup = 2 * time.Second
)

// newLedger returns the cost ledger.
func newLedger(config *Config, p *parts, view *cluster.Cluster, recorder record.EventRecorder, events problems.EventSink) *ledger.Ledger {
	return ledger.New(ledger.Config{
		Inventory: &inventory{provider: p.provider, cluster: view}, Prices: p.prices, Clock: config.Clock,
		Store: newStateStore(config, options.LedgerSuffix),
		Ended: (&costEvents{jobs: p.jobs, recorder: recorder}).ended,
		Anew: func(err error) {
			events.Eventf(corev1.EventTypeWarning, "SpotLedgerAnew", "Costs are counted anew from now on, and what was saved is kept beside them: %v", err)
		},
	})
}

// newKeeper returns what fills and keeps the memory of the market.
func newKeeper(config *Config, memory *market.Memory, provider *ess.Provider, prices *pricing.Book, events problems.EventSink) *market.Keeper {
	return market.NewKeeper(market.KeeperConfig{
		Memory: memory, Store: newStateStore(config, options.MarketSuffix), Clock: config.Clock,
		Instances: func() (spot []market.Living, at time.Time) {
			instances, at := provider.Instances()
			for _, i := range instances {
				if i.Offering.Spot {
					price, _ := prices.ExactPrice(i.Offering)
					spot = append(spot, market.Living{ID: i.ID, Offering: i.Offering, Created: i.Created, Lost: i.Lost, Price: price})
				}
			}
			return spot, at
		},
		Corrupt: func(err error) {
			events.Eventf(corev1.EventTypeWarning, "SpotMarketForgotten", "How reliable offerings are is learnt anew: %v", err)
		},
	})
}

// newWatch returns what observes the stock of the offerings of all pools. One without a price may be bought, too, unless its pool has a cap.
func newWatch(config *Config, memory *market.Memory, provider *ess.Provider, prices *pricing.Book, events market.EventSink) *market.Watch {
	return market.NewWatch(market.WatchConfig{
		Memory: memory, Source: config.Cloud, Clock: config.Clock, Events: events, Offerings: prices.Wanted, Pools: provider.SpotPools,
	})
}

// marketPrice returns a function that returns the price of an offering. Unlike the book it does not take the price of on-demand for that of spot.
func marketPrice(prices *pricing.Book) func(pricing.Offering) (float64, bool) {
	return func(o pricing.Offering) (float64, bool) {
		if o.Spot {
			return prices.ExactPrice(o)
		}
		return prices.Price(o)
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
	for _, pod := range v.cluster.PodsOn(node.Name) {
		if kubepod.IsPodTerminal(pod) {
			continue
		}
		if part := partOf(node, pod, gpus); part > 0 {
			ref := v.cluster.PartyOf(pod).Ref
			shares = append(shares, ledger.Share{Part: part, Since: ptr.Deref(pod.Status.StartTime, metav1.Time{}).Time, Job: ledger.Job{Namespace: ref.Namespace, System: ref.System, Name: nameOf(ref.Name)}})
		}
	}
	return shares
}

// partOf returns which part of a node with so many GPUs the pod requests: of its GPUs, or of its CPUs if it has none.
func partOf(node *corev1.Node, pod *corev1.Pod, gpus float64) float64 {
	if gpus > 0 && !processors.RequestsGPU(pod) {
		return 0 // most pods of a big cluster, of which the sum of all requests would cost more than all the rest of the ledger
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	if gpus == 0 {
		return processors.ResourceShare(corev1.ResourceCPU, requests, node.Status.Allocatable)
	}
	return processors.GPUShare(requests, node.Status.Allocatable, gpus)
}

// longestName bounds the names in the ledger: those that come from annotations may be as long as their owners like.
const longestName = 100

// nameOf returns the name of a job, shortened if an owner has made it too long for a line of the ledger.
func nameOf(name string) string {
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.ToValidUTF8(name[:longestName-2*4-1], "") + "-" + hex.EncodeToString(sum[:4])
}

// mostState is how many bytes of states a ConfigMap holds: the API server refuses more than 1 MiB with all that is around them.
const mostState = 900 << 10

// stateStore keeps a state in a ConfigMap. It is not safe for concurrent use.
type stateStore struct {
	client          kubernetes.Interface
	namespace, name string
	// version is that of the ConfigMap that was read or written last, so that a process that has lost its lease overwrites nothing.
	version string
	// loaded is what was read or written last, aside what is to be kept beside the state.
	loaded, aside []byte
}

func newStateStore(config *Config, suffix string) *stateStore {
	return &stateStore{client: config.Kube, namespace: config.Autoscaling.ConfigNamespace, name: config.DeploymentName + suffix}
}

// Load implements state.Store.
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
	s.loaded, s.aside = configMap.BinaryData[options.StateKey], configMap.BinaryData[asideKey]
	return s.loaded, nil
}

// SetAside implements state.Store.
func (s *stateStore) SetAside() { s.aside = s.loaded }

// Save implements state.Store. A ConfigMap that somebody has made since is a conflict too. If somebody has deleted it, the error is NotFound,
// and the next Save makes it anew.
func (s *stateStore) Save(ctx context.Context, state []byte) error {
	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name, ResourceVersion: s.version},
		BinaryData: map[string][]byte{options.StateKey: state},
	}
	switch {
	case len(s.aside) == 0:
	case len(state)+len(s.aside) > mostState:
		klog.FromContext(ctx).Info("Dropping the state that was set aside: a ConfigMap has no room for both", "configMap", klog.KRef(s.namespace, s.name))
		s.aside = nil
	default:
		configMap.BinaryData[asideKey] = s.aside
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
		s.version, s.loaded = written.ResourceVersion, state
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

// ended records an Event on the job's object. It returns false if the job has not ended, or could not be read.
func (e *costEvents) ended(ctx context.Context, job ledger.Job, cost ledger.Amounts, currency string) bool {
	if job.System == jobs.SystemPod {
		return true // there is no object
	}
	ctx, cancel := context.WithTimeout(ctx, jobLookup)
	defer cancel()
	found, err := e.jobs.Get(ctx, jobs.NewRef(job.System, job.Namespace, job.Name))
	switch {
	case errors.Is(err, jobs.ErrNoObject):
		return true
	case err != nil:
		klog.FromContext(ctx).V(1).Info("Cannot tell a job what it cost, will try again", "job", job, "err", err)
		return false
	case !found.Finished || found.Object == nil:
		return false
	}
	e.recorder.Event(found.Object, corev1.EventTypeNormal, "SpotCost", costOf(cost, currency))
	return true
}

// costOf says what a job cost.
func costOf(cost ledger.Amounts, currency string) string {
	return fmt.Sprintf("The job cost %s for %.1f GPU-hours; on demand it would have been %s",
		pricing.Amount(cost.Cost, currency), cost.GPUHours, pricing.Amount(cost.OnDemand, currency))
}
