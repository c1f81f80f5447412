package app

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/autoscaler/cluster-autoscaler/config/flags"
	"k8s.io/autoscaler/cluster-autoscaler/debuggingsnapshot"
	"k8s.io/client-go/informers"
	componentconfig "k8s.io/component-base/config"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/plan"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/test/alisim"
)

const (
	planRegion = "ap-southeast-1"
	planA      = planRegion + "a"
	planB      = planRegion + "b"
	planA10    = "ecs.gn7i-c8g1.2xlarge" // one GPU
	planT4     = "ecs.gn6i-c8g1.2xlarge" // one GPU
)

// coreOptions are the defaults of Cluster Autoscaler, which are computed of global variables.
var coreOptions = sync.OnceValue(flags.AutoscalingOptions)

// planWorld is a cloud and a cluster in which something is planned, and then bought.
type planWorld struct {
	*testing.T
	cloud *alisim.Server
	api   *apiServer
}

func newPlanWorld(t *testing.T, pools ...alisim.Pool) *planWorld {
	w := alisim.NewWorld(planRegion, planA, planB)
	w.Pools, w.RateLimits = pools, map[string]int{"*": 0}
	w.ActivityDelay, w.ListLag = metav1.Duration{Duration: 100 * time.Millisecond}, metav1.Duration{Duration: -1}
	for zone, price := range map[string]float64{planA: 6, planB: 4} {
		w.Sell(planA10, zone, price, 10)
		w.Sell(planT4, zone, price-1, 9)
	}
	cloud, err := alisim.Start(t.Context(), w, alisim.Options{})
	require.NoError(t, err)
	t.Cleanup(cloud.Stop)
	return &planWorld{t, cloud, newAPIServer(t)}
}

// planPool is a pool of spot instances of the types in zones a and b, of at most so many, with further tags.
func planPool(id string, most int, types []string, change ...func(*alisim.Pool)) alisim.Pool {
	pool := alisim.Pool{
		ID: id, MaxSize: most, InstanceTypes: types, VSwitches: []string{"vsw-a", "vsw-b"}, SpotStrategy: alisim.SpotAsPriceGo,
		CompensateWithOnDemand: ptr.To(false),
		Tags:                   map[string]string{"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/test": "owned"},
	}
	for _, each := range change {
		each(&pool)
	}
	return pool
}

func tagged(key, value string) func(*alisim.Pool) {
	return func(pool *alisim.Pool) { pool.Tags["gpu-spot.autoscaling/"+key] = value }
}

func onDemand(pool *alisim.Pool) { pool.SpotStrategy = "NoSpot" }

// options are those of an autoscaler in the world.
func (w *planWorld) options() *options.Options {
	w.Helper()
	dir, key := w.TempDir(), w.cloud.AccessKey()
	for name, value := range map[string]string{"ALIBABA_CLOUD_ACCESS_KEY_ID": key.ID, "ALIBABA_CLOUD_ACCESS_KEY_SECRET": key.Secret} {
		require.NoError(w, os.WriteFile(filepath.Join(dir, name), []byte(value), 0o600))
	}
	o := &options.Options{
		PriceRefreshInterval: 5 * time.Minute, PriceMaxAge: pricing.DefaultMaxAge, Terms: pricing.Terms{Restart: 10 * time.Minute},
		ReclaimPollInterval: 2 * time.Second, ReclaimNoticePeriod: 5 * time.Minute, ReclaimReplaceWait: time.Minute, ReclaimMaxUnconfirmed: intstr.FromInt32(1),
		ReclaimRateLimits: reclaim.DefaultRateLimits, DeploymentName: options.Name, Faults: options.FaultOptions{MaxNodes: intstr.FromInt32(1)},
		LeaderElection: componentconfig.LeaderElectionConfiguration{ResourceName: options.Name, ResourceNamespace: "kube-system"},
	}
	o.LeaderElection.RenewDeadline.Duration = 10 * time.Second
	o.Region, o.CloudScheme, o.CredentialsDir = planRegion, "http", dir
	o.Endpoints.ESS, o.Endpoints.ECS, o.Endpoints.VPC, o.Endpoints.STS = w.cloud.Endpoint(), w.cloud.Endpoint(), w.cloud.Endpoint(), w.cloud.STSEndpoint()
	o.Autoscaling = coreOptions()
	o.Autoscaling.ClusterName, o.Autoscaling.ExpanderNames = "test", pricing.LeastPriceName
	o.Autoscaling.ScaleDownEnabled, o.Autoscaling.WriteStatusConfigMap, o.Autoscaling.CordonNodeBeforeTerminate = false, false, false
	o.Autoscaling.KubeClientOpts.KubeClientQPS, o.Autoscaling.KubeClientOpts.KubeClientBurst = 1000, 1000
	o.Autoscaling.KubeClientOpts.APIContentType = "application/json"
	return o
}

// plan returns what would be bought for the documents.
func (w *planWorld) plan(documents string, of *parts) *plan.Plan {
	w.Helper()
	read, err := plan.ReadFiles([]string{plan.Stdin}, strings.NewReader(documents), "default")
	require.NoError(w, err)
	request := plan.Request{Options: w.options(), Kube: w.api.config(), Documents: read}
	if of != nil {
		pools, _ := of.provider.Pools()
		request.Shortages = plan.ShortagesOf(pools)
	}
	made, err := foretell(w.Context(), request)
	require.NoError(w, err)
	return made
}

// lead runs an autoscaler that buys, and calls do once it has read the pools.
func (w *planWorld) lead(do func(ctx context.Context, p *parts)) {
	w.Helper()
	opts := w.options()
	config, err := newConfig(opts, w.api.config())
	require.NoError(w, err)
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	p, err := build(ctx, config, snapshotter{debuggingsnapshot.NewDebuggingSnapshotter(false)})
	require.NoError(w, err)
	factories := []informers.SharedInformerFactory{p.informers, p.overrides.Informers, p.ack.informers}
	require.NoError(w, whileListed(ctx, firstLists, factories, func(ctx context.Context) error {
		ctx, cancel := context.WithCancel(ctx)
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { p.prices.Run(ctx); return nil })
		group.Go(func() error { return unlessDone(ctx, p.gangs.Run(ctx)) })
		group.Go(func() error {
			defer cancel()
			if err := p.prepare(ctx); err != nil {
				return err
			}
			defer p.cleanUp(ctx)
			if err := p.core.Start(); err != nil {
				return err
			}
			do(ctx, p)
			return nil
		})
		return group.Wait()
	}))
}

// putPending has a pod of one GPU in the cluster that the scheduler could not place.
func (w *planWorld) putPending(name string) {
	w.Helper()
	w.api.put("/api/v1/pods", fmt.Sprintf(`{metadata: {name: %s, namespace: default, uid: %s}, spec: {schedulerName: default-scheduler, containers: [{name: main, resources: {requests: {nvidia.com/gpu: "1"}, limits: {nvidia.com/gpu: "1"}}}]},
		status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}}`, name, name))
}

// submit has the pods in the informer of the autoscaler, as their controllers and the scheduler leave them.
func (w *planWorld) submit(p *parts, pods []*corev1.Pod) {
	w.Helper()
	for _, pod := range pods {
		require.NoError(w, p.informers.Core().V1().Pods().Informer().GetIndexer().Add(pod))
	}
}

// bought counts what was bought, by pool, type, zone and option, once nothing more comes.
func (w *planWorld) bought() map[string]int {
	all := map[string]int{}
	for _, i := range w.cloud.Instances() {
		option := "spot"
		if i.SpotStrategy == "NoSpot" || i.SpotStrategy == "" {
			option = "on-demand"
		}
		all[fmt.Sprintf("%s/%s/%s/%s", i.ScalingGroupID, i.InstanceType, i.Zone, option)]++
	}
	return all
}

// boughtOf is bought, in the words of the plan: of a pool that cannot be asked for a type, any type.
func (w *planWorld) boughtOf(p plan.Purchase) map[string]int {
	all := w.bought()
	for _, item := range p.Items {
		if item.InstanceType != pricing.AnyType {
			continue
		}
		for key, count := range all {
			if strings.HasPrefix(key, item.Pool+"/") {
				delete(all, key)
				all[item.Offering] += count
			}
		}
	}
	return all
}

func planned(p plan.Purchase) map[string]int {
	all := map[string]int{}
	for _, item := range p.Items {
		all[item.Offering] += item.Count
	}
	return all
}

// podsLike returns pods as a controller makes them and the scheduler leaves them.
func podsLike(count int, document string) (pods []*corev1.Pod) {
	for i := range count {
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte(strings.ReplaceAll(document, "%d", fmt.Sprint(i))), pod); err != nil {
			panic(err)
		}
		pod.Namespace, pod.UID, pod.CreationTimestamp = "default", types.UID("uid-"+pod.Name), metav1.Now()
		for c := range pod.Spec.Containers {
			pod.Spec.Containers[c].Resources.Requests = maps.Clone(pod.Spec.Containers[c].Resources.Limits)
		}
		pod.Spec.SchedulerName = "default-scheduler"
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		}}}
		pods = append(pods, pod)
	}
	return pods
}

const oneGPU = `containers: [{name: main, image: train, resources: {limits: {nvidia.com/gpu: "1"}}}]`

// soonAfter is a deadline that leaves time for an hour of work, and not for a reclaim.
var soonAfter = time.Now().Add(75 * time.Minute).UTC().Format(time.RFC3339)

// planCases are worlds, what is submitted in them, and the pods that come of it there.
var planCases = map[string]struct {
	pools    []alisim.Pool
	change   func(w *planWorld)
	document string
	pods     []*corev1.Pod
	// objects are what the cluster has of the job, by the path of their list.
	objects map[string]string
	// nothing is part of what is said if nothing is bought.
	nothing string
	// isSlow is whether a new process has to wait before it buys.
	isSlow bool
}{
	"the cheapest zone": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10})},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {`+oneGPU+`}}`),
	},
	"the cheapest type": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10, planT4})},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {`+oneGPU+`}}`),
	},
	"the type that the pods select": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10, planT4})},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {nodeSelector: {node.kubernetes.io/instance-type: ` + planA10 + `}, ` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {nodeSelector: {node.kubernetes.io/instance-type: `+planA10+`}, `+oneGPU+`}}`),
	},
	"the zone that the pods select": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10})},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {nodeSelector: {topology.kubernetes.io/zone: ` + planA + `}, ` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {nodeSelector: {topology.kubernetes.io/zone: `+planA+`}, `+oneGPU+`}}`),
	},
	"a Deployment of four": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10})},
		document: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: serve}, spec: {replicas: 4, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {` + oneGPU + `}}}}`,
		pods:     podsLike(4, `{metadata: {name: serve-5d-%d, labels: {a: b}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: serve-5d, uid: u, controller: true}]}, spec: {`+oneGPU+`}}`),
	},
	"a batch Job of three": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10})},
		document: `{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, completions: 3, template: {spec: {restartPolicy: Never, ` + oneGPU + `}}}}`,
		pods:     podsLike(3, `{metadata: {name: train-%d, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {restartPolicy: Never, `+oneGPU+`}}`),
	},
	"a price cap that leaves one zone": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10}, tagged("price-cap", "5")), planPool("asg-2", 10, []string{planT4}, tagged("price-cap", "1"))},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {`+oneGPU+`}}`),
	},
	"a price cap that leaves nothing": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10}, tagged("price-cap", "1"))},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {`+oneGPU+`}}`),
		nothing:  "price cap 1 < price 4",
	},
	"more pods than the pool may have": {
		pools:    []alisim.Pool{planPool("asg-1", 2, []string{planA10})},
		document: `{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, template: {spec: {restartPolicy: Never, ` + oneGPU + `}}}}`,
		pods:     podsLike(3, `{metadata: {name: train-%d, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {restartPolicy: Never, `+oneGPU+`}}`),
	},
	"more pods than one pool may have, and another": {
		pools:    []alisim.Pool{planPool("asg-1", 2, []string{planT4}), planPool("asg-2", 2, []string{planA10})},
		document: `{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, template: {spec: {restartPolicy: Never, ` + oneGPU + `}}}}`,
		pods:     podsLike(3, `{metadata: {name: train-%d, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {restartPolicy: Never, `+oneGPU+`}}`),
	},
	"a declared gang": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10})},
		document: `{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, template: {metadata: {annotations: {gpu-spot.autoscaling/gang-name: g, gpu-spot.autoscaling/gang-size: "3"}}, spec: {restartPolicy: Never, ` + oneGPU + `}}}}`,
		pods:     podsLike(3, `{metadata: {name: train-%d, annotations: {gpu-spot.autoscaling/gang-name: g, gpu-spot.autoscaling/gang-size: "3"}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {restartPolicy: Never, `+oneGPU+`}}`),
	},
	"a gang for which there is no room": {
		pools:    []alisim.Pool{planPool("asg-1", 2, []string{planA10})},
		document: `{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, template: {metadata: {annotations: {gpu-spot.autoscaling/gang-name: g, gpu-spot.autoscaling/gang-size: "3"}}, spec: {restartPolicy: Never, ` + oneGPU + `}}}}`,
		pods:     podsLike(3, `{metadata: {name: train-%d, annotations: {gpu-spot.autoscaling/gang-name: g, gpu-spot.autoscaling/gang-size: "3"}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {restartPolicy: Never, `+oneGPU+`}}`),
		nothing:  "gang",
	},
	"a gang over two pools": {
		pools:    []alisim.Pool{planPool("asg-1", 2, []string{planA10}), planPool("asg-2", 2, []string{planA10})},
		document: `{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, template: {metadata: {annotations: {gpu-spot.autoscaling/gang-name: g, gpu-spot.autoscaling/gang-size: "3"}}, spec: {restartPolicy: Never, ` + oneGPU + `}}}}`,
		pods:     podsLike(3, `{metadata: {name: train-%d, annotations: {gpu-spot.autoscaling/gang-name: g, gpu-spot.autoscaling/gang-size: "3"}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {restartPolicy: Never, `+oneGPU+`}}`),
	},
	"a gang that is not whole": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10})},
		document: `{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, template: {metadata: {annotations: {gpu-spot.autoscaling/gang-name: g, gpu-spot.autoscaling/gang-size: "4"}}, spec: {restartPolicy: Never, ` + oneGPU + `}}}}`,
		pods:     podsLike(3, `{metadata: {name: train-%d, annotations: {gpu-spot.autoscaling/gang-name: g, gpu-spot.autoscaling/gang-size: "4"}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {restartPolicy: Never, `+oneGPU+`}}`),
		nothing:  "Gang 3 of 4: only so many of its pods exist.",
	},
	"a PyTorchJob, which is a gang by itself": {
		pools:    []alisim.Pool{planPool("asg-1", 2, []string{planT4}), planPool("asg-2", 10, []string{planA10})},
		document: `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: bert}, spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: {spec: {` + oneGPU + `}}}, Worker: {replicas: 2, template: {spec: {` + oneGPU + `}}}}}}`,
		pods:     podsLike(3, `{metadata: {name: bert-worker-%d, labels: {training.kubeflow.org/operator-name: pytorchjob-controller, training.kubeflow.org/job-name: bert, training.kubeflow.org/replica-type: worker, training.kubeflow.org/replica-index: "%d"}, ownerReferences: [{apiVersion: kubeflow.org/v1, kind: PyTorchJob, name: bert, uid: u, controller: true}]}, spec: {`+oneGPU+`}}`),
		objects:  map[string]string{"/apis/kubeflow.org/v1/pytorchjobs": `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: bert, namespace: default}, spec: {pytorchReplicaSpecs: {Master: {replicas: 1, template: {spec: {` + oneGPU + `}}}, Worker: {replicas: 2, template: {spec: {` + oneGPU + `}}}}}}`},
	},
	"a JobSet": {
		pools:    []alisim.Pool{planPool("asg-1", 3, []string{planT4}), planPool("asg-2", 10, []string{planA10})},
		document: `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: llm}, spec: {replicatedJobs: [{name: node, replicas: 2, template: {spec: {parallelism: 2, template: {spec: {` + oneGPU + `}}}}}]}}`,
		pods: append(podsLike(2, `{metadata: {name: llm-node-0-%d, labels: {jobset.sigs.k8s.io/jobset-name: llm, jobset.sigs.k8s.io/replicatedjob-name: node, jobset.sigs.k8s.io/job-index: "0"}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: llm-node-0, uid: u0, controller: true}]}, spec: {`+oneGPU+`}}`),
			podsLike(2, `{metadata: {name: llm-node-1-%d, labels: {jobset.sigs.k8s.io/jobset-name: llm, jobset.sigs.k8s.io/replicatedjob-name: node, jobset.sigs.k8s.io/job-index: "1"}, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: llm-node-1, uid: u1, controller: true}]}, spec: {`+oneGPU+`}}`)...),
		objects: map[string]string{"/apis/jobset.x-k8s.io/v1alpha2/jobsets": `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: llm, namespace: default}, spec: {replicatedJobs: [{name: node, replicas: 2, template: {spec: {parallelism: 2, template: {spec: {` + oneGPU + `}}}}}]}}`},
	},
	"a Volcano job, whose group says how many start together": {
		pools:    []alisim.Pool{planPool("asg-1", 2, []string{planT4}), planPool("asg-2", 10, []string{planA10})},
		document: `{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {name: res}, spec: {minAvailable: 3, tasks: [{name: worker, replicas: 3, template: {spec: {` + oneGPU + `}}}]}}`,
		pods:     podsLike(3, `{metadata: {name: res-worker-%d, annotations: {scheduling.k8s.io/group-name: res-uid}, labels: {volcano.sh/job-name: res, volcano.sh/task-spec: worker}, ownerReferences: [{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: res, uid: u, controller: true}]}, spec: {`+oneGPU+`}}`),
		objects:  map[string]string{"/apis/scheduling.volcano.sh/v1beta1/podgroups": `{apiVersion: scheduling.volcano.sh/v1beta1, kind: PodGroup, metadata: {name: res-uid, namespace: default}, spec: {minMember: 3}}`},
	},
	"on-demand, where there is no spot": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10}, onDemand)},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {`+oneGPU+`}}`),
	},
	"on-demand, for which pods wait": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10}, tagged("price-cap", "1")), planPool("asg-2", 10, []string{planA10}, onDemand, tagged("on-demand-after", "10m"))},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {`+oneGPU+`}}`),
		nothing:  "on-demand, for which the pod waits until",
	},
	"on-demand in time for a deadline": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10}), planPool("asg-2", 10, []string{planA10}, onDemand, tagged("on-demand-after", "10m"))},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train, annotations: {gpu-spot.autoscaling/deadline: "` + soonAfter + `", gpu-spot.autoscaling/work: 1h}}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train, annotations: {gpu-spot.autoscaling/deadline: "`+soonAfter+`", gpu-spot.autoscaling/work: 1h}}, spec: {`+oneGPU+`}}`),
	},
	"a pod that fits nothing": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10})},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {containers: [{name: main, image: train, resources: {limits: {nvidia.com/gpu: "64"}}}]}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {containers: [{name: main, image: train, resources: {limits: {nvidia.com/gpu: "64"}}}]}}`),
		nothing:  "It fits none of the 2 offerings: Insufficient nvidia.com/gpu.",
	},
	"a pool that cannot be asked for a type": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10, planT4}, tagged("targeting", "whole"))},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {`+oneGPU+`}}`),
	},
	"a taint that only admitted pods tolerate": {
		pools: []alisim.Pool{planPool("asg-1", 10, []string{planA10}, func(pool *alisim.Pool) {
			pool.Tags["k8s.io/cluster-autoscaler/node-template/taint/admitted"] = "yes:NoSchedule"
		})},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {tolerations: [{key: admitted, operator: Exists}], `+oneGPU+`}}`),
	},
	"a pool that buys by RunInstances": {
		pools:    []alisim.Pool{planPool("asg-1", 10, []string{planA10}, tagged("purchase", "run-instances"))},
		document: `{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {` + oneGPU + `}}`,
		pods:     podsLike(1, `{metadata: {name: train}, spec: {`+oneGPU+`}}`),
		isSlow:   true,
	},
	"a node that is there has the place": {
		pools: []alisim.Pool{planPool("asg-1", 10, []string{planA10})},
		change: func(w *planWorld) {
			w.api.put("/api/v1/nodes", `{metadata: {name: mine, labels: {kubernetes.io/hostname: mine}}, status: {conditions: [{type: Ready, status: "True"}], capacity: {nvidia.com/gpu: "1", cpu: "8", memory: 32Gi, pods: "64"}, allocatable: {nvidia.com/gpu: "1", cpu: "8", memory: 32Gi, pods: "64"}}}`)
		},
		document: `{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 2, template: {spec: {restartPolicy: Never, ` + oneGPU + `}}}}`,
		pods:     podsLike(2, `{metadata: {name: train-%d, ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]}, spec: {restartPolicy: Never, `+oneGPU+`}}`),
	},
}

// The plan is made of the file alone. What follows is bought by an autoscaler for pods that somebody else has made, of the simulated cloud.
func TestThePlanEqualsThePurchaseThatFollows(t *testing.T) {
	for name, test := range planCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.isSlow && testing.Short() {
				t.Skip("a new process waits half a minute before it buys")
			}
			w := newPlanWorld(t, test.pools...)
			if test.change != nil {
				test.change(w)
			}
			made := w.plan(test.document, nil)
			var text strings.Builder
			require.NoError(t, made.WriteText(&text))
			t.Log(text.String())
			assert.Empty(t, w.cloud.Requests("ScaleWithAdjustment"), "a plan buys nothing")
			assert.Empty(t, w.api.written(), "and writes nothing")
			if test.nothing != "" {
				assert.Empty(t, made.Purchase.Items)
				assert.Contains(t, text.String(), test.nothing)
			} else {
				assert.NotEmpty(t, made.Purchase.Items)
			}

			for list, object := range test.objects {
				w.api.put(list, object)
			}
			w.lead(func(ctx context.Context, p *parts) {
				w.submit(p, test.pods)
				require.NoError(t, p.loops(ctx, mostLoops))
				assert.Eventually(t, func() bool {
					require.NoError(t, p.loops(ctx, mostLoops))
					return maps.Equal(planned(made.Purchase), w.boughtOf(made.Purchase))
				}, 20*time.Second, 50*time.Millisecond, "as much is bought")
				require.NoError(t, p.loops(ctx, mostLoops))
			})
			assert.Equal(t, planned(made.Purchase), w.boughtOf(made.Purchase))
		})
	}
}

// What the leader has found out of stock is out of stock for a plan, too.
func TestAPlanKnowsWhatTheLeaderHasFoundOutOfStock(t *testing.T) {
	for name, test := range map[string]struct {
		empty   []string
		bought  map[string]int
		nothing string
	}{
		"in the cheapest zone": {empty: []string{planB}, bought: map[string]int{"asg-1/" + planA10 + "/" + planA + "/spot": 1}},
		"everywhere":           {empty: []string{planA, planB}, bought: map[string]int{}, nothing: "out of stock: pool asg-1 got 0 of 1 at "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPlanWorld(t, planPool("asg-1", 10, []string{planA10}))
			for _, zone := range test.empty {
				w.cloud.SetStock(planA10, zone, 0)
			}
			document := `{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {` + oneGPU + `}}`
			w.putPending("first")
			w.lead(func(ctx context.Context, p *parts) {
				short := func() bool {
					require.NoError(t, p.loops(ctx, mostLoops))
					pools, _ := p.provider.Pools()
					return len(plan.ShortagesOf(pools)) == len(test.empty) && len(w.cloud.Instances()) == len(test.bought)
				}
				require.Eventually(t, short, 30*time.Second, 50*time.Millisecond, "the leader has found what is out of stock")
				before := len(w.cloud.Instances())

				made := w.plan(fmt.Sprintf(document, "second"), p)
				var text strings.Builder
				require.NoError(t, made.WriteText(&text))
				t.Log(text.String())
				assert.Equal(t, test.bought, planned(made.Purchase))
				assert.Contains(t, text.String(), test.nothing)

				w.submit(p, podsLike(1, fmt.Sprintf(document, "second")))
				require.NoError(t, p.loops(ctx, mostLoops))
				assert.Eventually(t, func() bool { return len(w.cloud.Instances()) == before+len(test.bought) }, 20*time.Second, 50*time.Millisecond)
				for offering, count := range test.bought {
					assert.Equal(t, before+count, w.bought()[offering])
				}
			})
		})
	}
}

func TestPodsThatWaitAlreadyAreNotPartOfThePlan(t *testing.T) {
	w := newPlanWorld(t, planPool("asg-1", 3, []string{planA10}))
	w.putPending("other-a")
	w.putPending("other-b")
	made := w.plan(`{apiVersion: batch/v1, kind: Job, metadata: {name: train}, spec: {parallelism: 3, template: {spec: {restartPolicy: Never, `+oneGPU+`}}}}`, nil)
	assert.Equal(t, map[string]int{"asg-1/" + planA10 + "/" + planB + "/spot": 1}, planned(made.Purchase), "two of three are for those that wait")
}

func TestTheCostToFinishIsThatOfTheWorkAndOfWhatReclaimsTakeAway(t *testing.T) {
	w := newPlanWorld(t, planPool("asg-1", 3, []string{planA10}))
	made := w.plan(`{apiVersion: v1, kind: Pod, metadata: {name: train, annotations: {gpu-spot.autoscaling/work: 10h}}, spec: {`+oneGPU+`}}`, nil)
	require.NotNil(t, made.Purchase.CostToFinish)
	// Where nothing was ever seen, an instance is expected to be kept for a day, and ten minutes are lost with it.
	assert.InDelta(t, 4*10*24/(24-1./6), *made.Purchase.CostToFinish, .01)
	require.NotNil(t, made.RunnerUp.CostToFinish)
	assert.Greater(t, *made.RunnerUp.CostToFinish, *made.Purchase.CostToFinish)
	assert.Equal(t, "CNY", made.Currency)
	var text strings.Builder
	require.NoError(t, made.WriteText(&text))
	assert.Contains(t, text.String(), "expected until the job has done its 10h of work")
}

func TestAJobThatTheClusterHasAlreadyIsNoPlan(t *testing.T) {
	w := newPlanWorld(t, planPool("asg-1", 3, []string{planA10}))
	w.api.put("/api/v1/pods", `{apiVersion: v1, kind: Pod, metadata: {name: train, namespace: default, uid: u}, spec: {containers: [{name: main}]}}`)
	read, err := plan.ReadFiles([]string{plan.Stdin}, strings.NewReader(`{apiVersion: v1, kind: Pod, metadata: {name: train}, spec: {`+oneGPU+`}}`), "default")
	require.NoError(t, err)
	_, err = foretell(t.Context(), plan.Request{Options: w.options(), Kube: w.api.config(), Documents: read})
	assert.ErrorContains(t, err, "standard input, document 1 (Pod default/train): metadata.name: the cluster has it already")
}
