package queues

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
)

const (
	localQueueGPU = `{metadata: {namespace: ml, name: gpu}, spec: {clusterQueue: a}}`
	// queueA has two flavors, and lends to b.
	queueA = `
metadata: {name: a}
spec:
  cohort: all
  queueingStrategy: BestEffortFIFO
  stopPolicy: None
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: default, resources: [{name: cpu, nominalQuota: "10"}]}]
    - coveredResources: [nvidia.com/gpu, pods]
      flavors:
        - {name: spot, resources: [{name: nvidia.com/gpu, nominalQuota: "4"}, {name: pods, nominalQuota: "9"}]}
        - {name: on-demand, resources: [{name: nvidia.com/gpu, nominalQuota: 2}, {name: pods, nominalQuota: 9}]}
status:
  conditions: [{type: Active, status: "True"}]
  pendingWorkloads: 1
  flavorsReservation:
    - {name: default, resources: [{name: cpu, total: "1"}]}
    - {name: spot, resources: [{name: nvidia.com/gpu, total: "1"}]}
    - {name: on-demand, resources: [{name: nvidia.com/gpu, total: "1"}]}
`
	queueB = `
metadata: {name: b}
spec: {cohort: all, resourceGroups: [{coveredResources: [nvidia.com/gpu], flavors: [{name: spot, resources: [{name: nvidia.com/gpu, nominalQuota: "1"}]}]}]}
status: {flavorsReservation: [{name: spot, resources: [{name: nvidia.com/gpu, total: "0"}]}]}
`
)

func objects(t *testing.T, documents ...string) (list []unstructured.Unstructured) {
	t.Helper()
	for _, document := range documents {
		object := unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object.Object))
		list = append(list, object)
	}
	return list
}

// workers returns so many pods of one GPU and one CPU.
func workers(n int) (pods []*corev1.Pod) {
	for range n {
		pods = append(pods, &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		}}}}}})
	}
	return pods
}

func TestQuotaIsCertainOnlyWhereKueueWouldAdmitTheJobAtOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		workers int
		change  *strings.Replacer
		want    bool
	}{
		"as much as is left of one flavor":        {workers: 3, want: true},
		"more than is left of any":                {workers: 4},
		"as much as is left of all":               {workers: 2, change: strings.NewReplacer(`nominalQuota: "4"`, `nominalQuota: "2"`)},
		"too much of one resource":                {workers: 3, change: strings.NewReplacer(`nominalQuota: "10"`, `nominalQuota: "3"`)},
		"too many pods":                           {workers: 3, change: strings.NewReplacer(`nominalQuota: "9"`, `nominalQuota: "2"`)},
		"what others of its cohort have borrowed": {workers: 3, change: strings.NewReplacer(`total: "0"`, `total: "3"`)},
		"what others have borrowed, in v1beta2":   {workers: 3, change: strings.NewReplacer(`total: "0"`, `total: "3"`, "cohort:", "cohortName:")},
		"what others beyond its cohort use":       {workers: 3, change: strings.NewReplacer(`total: "0"`, `total: "3"`, "cohort: all\n", "cohort: own\n"), want: true},
		"a queue that is not active":              {workers: 1, change: strings.NewReplacer(`status: "True"`, `status: "False"`)},
		"a queue that is stopped":                 {workers: 1, change: strings.NewReplacer("stopPolicy: None", "stopPolicy: Hold")},
		"a queue in which others come first":      {workers: 1, change: strings.NewReplacer("BestEffortFIFO", "StrictFIFO")},
		"a queue in which it is the first":        {workers: 1, change: strings.NewReplacer("BestEffortFIFO", "StrictFIFO", "pendingWorkloads: 1", "pendingWorkloads: 0"), want: true},
		"a way to the queue that is stopped":      {workers: 1, change: strings.NewReplacer("clusterQueue: a", "clusterQueue: a, stopPolicy: HoldAndDrain")},
		"a way to no queue":                       {workers: 1, change: strings.NewReplacer("clusterQueue: a", "clusterQueue: c")},
		"no way":                                  {workers: 1, change: strings.NewReplacer("name: gpu}", "name: other}")},
		"a queue that cannot be read":             {workers: 1, change: strings.NewReplacer("pendingWorkloads: 1", "pendingWorkloads: many")},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.change == nil {
				tc.change = strings.NewReplacer()
			}
			q := New(objects(t, tc.change.Replace(localQueueGPU)), objects(t, tc.change.Replace(queueA), tc.change.Replace(queueB)), nil)
			assert.Equal(t, tc.want, q.Holds(types.NamespacedName{Namespace: "ml", Name: "gpu"}, Uses(workers(tc.workers))))
		})
	}
}

func TestWhatIsClaimedIsNotLeft(t *testing.T) {
	queue := types.NamespacedName{Namespace: "ml", Name: "gpu"}
	q := New(objects(t, localQueueGPU), objects(t, queueA, queueB), nil)
	q.Claim(queue, Uses(workers(2)))
	assert.True(t, q.Holds(queue, Uses(workers(1))))
	assert.False(t, q.Holds(queue, Uses(workers(2))))
	q.Claim(types.NamespacedName{Name: "unknown"}, Uses(workers(1)))
	assert.True(t, q.Holds(queue, Uses(workers(1))))
}

func TestPodsNeedTheirNodesWhereTheyAskForATopologyOrEachFlavorHasOne(t *testing.T) {
	queue := types.NamespacedName{Namespace: "ml", Name: "gpu"}
	const spot, onDemand, cpu = `{metadata: {name: spot}, spec: {topologyName: racks}}`, `{metadata: {name: on-demand}, spec: {topologyName: racks}}`,
		`{metadata: {name: default}, spec: {topologyName: racks}}`
	some := New(objects(t, localQueueGPU), objects(t, queueA), objects(t, spot, onDemand))
	for annotation, want := range map[string]bool{
		"kueue.x-k8s.io/podset-required-topology": true, "kueue.x-k8s.io/podset-preferred-topology": true,
		"kueue.x-k8s.io/podset-unconstrained-topology": true, "kueue.x-k8s.io/workload": false,
	} {
		pods := []*corev1.Pod{{}, {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation: "x"}}}}
		assert.Equal(t, want, some.NeedsNodes(queue, pods), annotation)
	}
	all := New(objects(t, localQueueGPU), objects(t, queueA), objects(t, spot, onDemand, cpu))
	assert.True(t, all.NeedsNodes(queue, workers(1)))
	assert.False(t, all.NeedsNodes(types.NamespacedName{Name: "unknown"}, workers(1)))
}
