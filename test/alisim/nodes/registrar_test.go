package nodes_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/nodes"
)

const (
	bootDriver  = 40 * time.Second
	gpu         = corev1.ResourceName("nvidia.com/gpu")
	gpuMemory   = corev1.ResourceName("aliyun.com/gpu-mem")
	gpuCount    = corev1.ResourceName("aliyun.com/gpu-count")
	gpuCore     = corev1.ResourceName("aliyun.com/gpu-core.percentage")
	gpuTopology = corev1.ResourceName("aliyun.com/gpu")
)

// a10 is a machine of type ecs.gn7i-c8g1.2xlarge.
func a10(id string) nodes.Machine {
	return nodes.Machine{
		InstanceID: id, Region: "cn-hangzhou", Zone: "cn-hangzhou-j", InstanceType: "ecs.gn7i-c8g1.2xlarge",
		SpotStrategy: "SpotAsPriceGo", PoolID: "asg-1",
		VCPU: 8, MemoryGiB: 30, GPUs: 1, GPUModel: "NVIDIA A10", GPUMemGiB: 24,
		DriverDelay: bootDriver,
	}
}

// fixture is a registrar whose cluster is in memory. Where a test lets time pass, it runs in a synctest bubble.
type fixture struct {
	client    *fake.Clientset
	registrar *nodes.Registrar
}

func newFixture() *fixture {
	f := &fixture{client: fake.NewClientset()}
	f.restart()
	return f
}

// restart forgets everything but the cluster.
func (f *fixture) restart() { f.registrar = nodes.NewRegistrar(f.client, clock.RealClock{}) }

// step lets time pass and waits for what it sets off.
func (f *fixture) step(d time.Duration) {
	time.Sleep(d)
	f.registrar.Wait()
}

func (f *fixture) nodes(t *testing.T) []corev1.Node {
	t.Helper()
	list, err := f.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	return list.Items
}

func (f *fixture) onlyNode(t *testing.T) corev1.Node {
	t.Helper()
	list := f.nodes(t)
	require.Len(t, list, 1)
	return list[0]
}

func TestNodeLooksLikeOneOfACK(t *testing.T) {
	f := newFixture()
	m := a10("i-bp1abc")
	m.Labels = map[string]string{"team": "vision"}
	m.Taints = []corev1.Taint{{Key: "gpu", Value: "a10", Effect: corev1.TaintEffectNoSchedule}}
	require.NoError(t, f.registrar.Up(t.Context(), m))

	node := f.onlyNode(t)
	assert.Regexp(t, `^cn-hangzhou\.10\.\d+\.\d+\.\d+$`, node.Name)
	assert.Equal(t, "cn-hangzhou.i-bp1abc", node.Spec.ProviderID)
	assert.Equal(t, m.Taints, node.Spec.Taints)
	assert.Equal(t, map[string]string{"kwok.x-k8s.io/node": "fake"}, node.Annotations)
	assert.Equal(t, "cn-hangzhou."+node.Status.Addresses[0].Address, node.Name)
	assert.Equal(t, map[string]string{
		"node.kubernetes.io/instance-type":              "ecs.gn7i-c8g1.2xlarge",
		"topology.kubernetes.io/zone":                   "cn-hangzhou-j",
		"topology.kubernetes.io/region":                 "cn-hangzhou",
		"kubernetes.io/arch":                            "amd64",
		"kubernetes.io/os":                              "linux",
		"kubernetes.io/hostname":                        node.Name,
		"aliyun.accelerator/nvidia_name":                "NVIDIA-A10",
		"aliyun.accelerator/nvidia_count":               "1",
		"aliyun.accelerator/nvidia_mem":                 "23028MiB",
		"aliyun.accelerator/xpu_type":                   "nvidia",
		"beta.kubernetes.io/arch":                       "amd64",
		"beta.kubernetes.io/os":                         "linux",
		"beta.kubernetes.io/instance-type":              "ecs.gn7i-c8g1.2xlarge",
		"failure-domain.beta.kubernetes.io/zone":        "cn-hangzhou-j",
		"failure-domain.beta.kubernetes.io/region":      "cn-hangzhou",
		"topology.diskplugin.csi.alibabacloud.com/zone": "cn-hangzhou-j",
		"alibabacloud.com/ecs-instance-id":              "i-bp1abc",
		"alibabacloud.com/nodepool-id":                  "asg-1",
		"node.alibabacloud.com/nodepool-id":             "asg-1",
		"node.alibabacloud.com/instance-charge-type":    "PostPaid",
		"node.alibabacloud.com/spot-strategy":           "SpotAsPriceGo",
		"team":                                          "vision",
	}, node.Labels)
}

func TestOnDemandMachineWithoutGPUs(t *testing.T) {
	f := newFixture()
	m := a10("i-1")
	m.SpotStrategy, m.PoolID, m.GPUs, m.DriverDelay = "", "", 0, 0
	require.NoError(t, f.registrar.Up(t.Context(), m))
	f.registrar.Wait()

	node := f.onlyNode(t)
	assert.Equal(t, "NoSpot", node.Labels["node.alibabacloud.com/spot-strategy"])
	assert.NotContains(t, node.Labels, "aliyun.accelerator/nvidia_name")
	assert.NotContains(t, node.Labels, "alibabacloud.com/nodepool-id")
	assert.NotContains(t, node.Status.Capacity, gpu)
}

func TestACKReservesItsShare(t *testing.T) {
	tests := map[string]struct {
		vcpu                             int
		memoryGiB                        float64
		diskGiB                          int
		cpu, memory, capacityMemory, gib string
	}{
		"a small node gives up a quarter of its memory": {1, 2, 40, "940m", "950Mi", "1666Mi", "35"},
		"four cores":          {4, 8, 0, "3920m", "6455Mi", "7714Mi", "106"},
		"eight cores, 30 GiB": {8, 30, 0, "7910m", "28631Mi", "29890Mi", "106"},
		"a large node":        {128, 1024, 500, "127610m", "1030583Mi", "1031842Mi", "442"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			m := a10("i-1")
			m.VCPU, m.MemoryGiB, m.SystemDiskGiB = tt.vcpu, tt.memoryGiB, tt.diskGiB
			require.NoError(t, f.registrar.Up(t.Context(), m))

			status := f.onlyNode(t).Status
			within := func(want string, got *resource.Quantity, unit string) {
				parsed, one := resource.MustParse(want), resource.MustParse(unit)
				assert.InDelta(t, parsed.Value(), got.Value(), float64(one.Value()), "%s, not %s", want, got)
			}
			assert.Equal(t, int64(tt.vcpu), status.Capacity.Cpu().Value())
			assert.Equal(t, tt.cpu, status.Allocatable.Cpu().String())
			within(tt.capacityMemory, status.Capacity.Memory(), "1Mi")
			within(tt.memory, status.Allocatable.Memory(), "1Mi")
			within(tt.gib+"Gi", status.Allocatable.StorageEphemeral(), "1Gi")
			assert.Equal(t, int64(64), status.Allocatable.Pods().Value())
			assert.Contains(t, status.Allocatable, corev1.ResourceName("hugepages-2Mi"))
			assert.Contains(t, status.Allocatable, corev1.ResourceName("hugepages-1Gi"))
		})
	}
}

func TestGPUsComeWithTheDriver(t *testing.T) {
	tests := map[string]struct {
		gpus          int
		schedule      string
		resources     map[string]string
		before, after map[corev1.ResourceName]string
	}{
		"whole GPUs":     {8, "", nil, nil, map[corev1.ResourceName]string{gpu: "8"}},
		"shared by hand": {2, "", map[string]string{"aliyun.com/gpu-mem": "48", "aliyun.com/gpu-count": "2"}, nil, map[corev1.ResourceName]string{gpuMemory: "48", gpuCount: "2"}},
		"fewer by hand":  {8, "default", map[string]string{"nvidia.com/gpu": "7"}, nil, map[corev1.ResourceName]string{gpu: "7"}},
		"shared":         {2, "cgpu", nil, nil, map[corev1.ResourceName]string{gpuMemory: "44", gpuCount: "2"}},
		"shared cores":   {2, "core_mem", nil, nil, map[corev1.ResourceName]string{gpuMemory: "44", gpuCount: "2", gpuCore: "200"}},
		"by topology":    {8, "topology", nil, nil, map[corev1.ResourceName]string{gpuTopology: "8"}},
		"none":           {0, "", nil, nil, nil},
		"others at once": {1, "", map[string]string{"aliyun/erdma": "4"}, map[corev1.ResourceName]string{"aliyun/erdma": "4"},
			map[corev1.ResourceName]string{gpu: "1", "aliyun/erdma": "4"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				m := a10("i-1")
				m.GPUs, m.Resources, m.Labels = tt.gpus, tt.resources, map[string]string{nodes.LabelGPUSchedule: tt.schedule}
				require.NoError(t, f.registrar.Up(t.Context(), m))
				has := func(want map[corev1.ResourceName]string) {
					t.Helper()
					status := f.onlyNode(t).Status
					for _, list := range []corev1.ResourceList{status.Capacity, status.Allocatable} {
						for _, name := range []corev1.ResourceName{gpu, gpuTopology, gpuMemory, gpuCount, gpuCore, "aliyun/erdma"} {
							quantity, ok := list[name]
							assert.Equal(t, want[name] != "", ok, name)
							if ok {
								assert.Equal(t, want[name], quantity.String(), name)
							}
						}
						assert.Contains(t, list, corev1.ResourceCPU)
					}
				}
				time.Sleep(bootDriver - time.Millisecond)
				synctest.Wait()
				has(tt.before)
				f.step(time.Millisecond)
				has(tt.after)
			})
		})
	}
}

func TestThePoolSaysHowManyPods(t *testing.T) {
	f := newFixture()
	m := a10("i-1")
	m.Resources = map[string]string{"pods": "110"}
	require.NoError(t, f.registrar.Up(t.Context(), m))
	few := newFixture()
	require.NoError(t, few.registrar.Up(t.Context(), a10("i-1")))

	got, usual := f.onlyNode(t).Status.Allocatable, few.onlyNode(t).Status.Allocatable
	assert.Equal(t, int64(110), got.Pods().Value())
	assert.Equal(t, int64((110-64)*11<<20), usual.Memory().Value()-got.Memory().Value(), "each pod costs 11 MiB")
}

func TestABrokenQuantityIsNamed(t *testing.T) {
	f := newFixture()
	m := a10("i-1")
	m.Resources = map[string]string{"aliyun.com/gpu-mem": "lots"}
	err := f.registrar.Up(t.Context(), m)
	assert.ErrorContains(t, err, `instance i-1: resource aliyun.com/gpu-mem="lots"`)
	assert.Empty(t, f.nodes(t))
}

func TestGPUModelsAreNamedAsTheDriverNamesThem(t *testing.T) {
	tests := []struct {
		model  string
		memory float64
		want   string
	}{
		{"A10", 24, "NVIDIA-A10"}, {"NVIDIA A10", 24, "NVIDIA-A10"}, {"NVIDIA L20", 48, "NVIDIA-L20"},
		{"T4", 16, "Tesla-T4"}, {"NVIDIA P4", 8, "Tesla-P4"}, {"P100", 16, "Tesla-P100-PCIE-16GB"},
		{"NVIDIA V100", 16, "Tesla-V100-SXM2-16GB"}, {"V100", 32, "Tesla-V100-SXM2-32GB"},
		{"A100", 80, "NVIDIA-A100-SXM4-80GB"}, {"96GB-GPU", 96, "NVIDIA-96GB-GPU"},
	}
	for _, tt := range tests {
		assert.Equal(t, tt.want, nodes.GPUName(tt.model, tt.memory))
	}
}

func TestManyMachinesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		var g errgroup.Group
		for i := range 100 {
			g.Go(func() error { return f.registrar.Up(t.Context(), a10(fmt.Sprintf("i-%d", i))) })
		}
		require.NoError(t, g.Wait())
		f.step(bootDriver)

		list := f.nodes(t)
		assert.Len(t, list, 100, "no name is given twice")
		for _, node := range list {
			assert.Contains(t, node.Status.Allocatable, gpu)
		}
	})
}

func TestATakenAddressIsPassedOver(t *testing.T) {
	scratch := newFixture()
	require.NoError(t, scratch.registrar.Up(t.Context(), a10("i-1")))
	taken := scratch.onlyNode(t)
	taken.Spec.ProviderID = "cn-hangzhou.i-other"

	f := newFixture()
	_, err := f.client.CoreV1().Nodes().Create(t.Context(), &taken, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
	assert.Len(t, f.nodes(t), 2)
}

func TestUpAgainChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
		require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
		f.restart()
		require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
		f.onlyNode(t)
		f.step(bootDriver)
		assert.Contains(t, f.onlyNode(t).Status.Allocatable, gpu, "a restart does not lose the driver")
	})
}

func TestDownSilencesThenDeletes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
		f.step(bootDriver)
		require.NoError(t, f.registrar.Down(t.Context(), "i-1"))

		node := f.onlyNode(t)
		assert.NotContains(t, node.Annotations, nodes.KwokAnnotation)
		require.Len(t, node.Status.Conditions, 1)
		assert.Equal(t, corev1.NodeReady, node.Status.Conditions[0].Type)
		assert.Equal(t, corev1.ConditionUnknown, node.Status.Conditions[0].Status)
		assert.Equal(t, "NodeStatusUnknown", node.Status.Conditions[0].Reason)
		assert.Contains(t, node.Status.Allocatable, gpu, "the rest of the status stays")

		require.NoError(t, f.registrar.Down(t.Context(), "i-1"), "again")
		time.Sleep(nodes.DefaultDeleteDelay - time.Millisecond)
		synctest.Wait()
		f.onlyNode(t)
		f.step(time.Millisecond)
		assert.Empty(t, f.nodes(t))
	})
}

func TestDownTakesWhatIsThere(t *testing.T) {
	tests := map[string]func(t *testing.T, f *fixture){
		"nothing": func(t *testing.T, f *fixture) {
			require.NoError(t, f.registrar.Down(t.Context(), "i-1"))
		},
		"a node of an earlier registrar": func(t *testing.T, f *fixture) {
			require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
			f.step(bootDriver)
			f.restart()
			require.NoError(t, f.registrar.Down(t.Context(), "i-1"))
		},
		"a node whose driver is not there yet": func(t *testing.T, f *fixture) {
			require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
			require.NoError(t, f.registrar.Down(t.Context(), "i-1"))
		},
		"a node that somebody deletes first": func(t *testing.T, f *fixture) {
			require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
			require.NoError(t, f.client.CoreV1().Nodes().Delete(t.Context(), f.onlyNode(t).Name, metav1.DeleteOptions{}))
			require.NoError(t, f.registrar.Down(t.Context(), "i-1"))
		},
		"a machine that comes up too late": func(t *testing.T, f *fixture) {
			require.NoError(t, f.registrar.Down(t.Context(), "i-1"))
			require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
		},
	}
	for name, run := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				run(t, f)
				f.step(nodes.DefaultDeleteDelay)
				assert.Empty(t, f.nodes(t))
			})
		})
	}
}

func TestTheEndOfTheContextEndsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture()
		ctx, cancel := context.WithCancel(t.Context())
		require.NoError(t, f.registrar.Up(ctx, a10("i-1")))
		require.NoError(t, f.registrar.Up(ctx, a10("i-2")))
		require.NoError(t, f.registrar.Down(ctx, "i-2"))
		began := time.Now()
		cancel()
		f.registrar.Wait()
		assert.Equal(t, began, time.Now(), "no timer was waited for")
		assert.Len(t, f.nodes(t), 2)
	})
}

var (
	nodeResource   = schema.GroupResource{Resource: "nodes"}
	errUnreachable = errors.New("connection refused")
)

// failing answers the first calls of a verb with an error.
func failing(client *fake.Clientset, verb string, times int32, err error) *atomic.Int32 {
	var calls atomic.Int32
	client.PrependReactor(verb, "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		return calls.Add(1) <= times, nil, err
	})
	return &calls
}

func TestAFailingAPIServerIsAskedAgain(t *testing.T) {
	tests := map[string]error{
		"unreachable":       errUnreachable,
		"too many requests": apierrors.NewTooManyRequests("later", 1),
		"internal error":    apierrors.NewInternalError(errUnreachable),
		"server timeout":    apierrors.NewServerTimeout(nodeResource, "create", 1),
		"conflict":          apierrors.NewConflict(nodeResource, "n", errUnreachable),
	}
	for name, failure := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture()
				for _, verb := range []string{"create", "patch"} {
					failing(f.client, verb, 3, failure)
				}
				require.NoError(t, f.registrar.Up(t.Context(), a10("i-1")))
				f.registrar.Wait()
				assert.Contains(t, f.onlyNode(t).Status.Allocatable, gpu)

				require.NoError(t, f.registrar.Down(t.Context(), "i-1"))
				f.registrar.Wait()
				assert.Empty(t, f.nodes(t))
			})
		})
	}
}

func TestWhatTheAPIServerRefusesIsReturned(t *testing.T) {
	f := newFixture()
	calls := failing(f.client, "create", 99, apierrors.NewForbidden(nodeResource, "n", nil))
	err := f.registrar.Up(t.Context(), a10("i-1"))
	assert.True(t, apierrors.IsForbidden(err), err)
	assert.ErrorContains(t, err, "instance i-1")
	assert.EqualValues(t, 1, calls.Load())
}

func TestRetryingEnds(t *testing.T) {
	t.Run("after some attempts", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			calls := failing(f.client, "create", 99, errUnreachable)
			begun := time.Now()
			assert.ErrorIs(t, f.registrar.Up(t.Context(), a10("i-1")), errUnreachable)
			assert.EqualValues(t, 15, calls.Load())
			assert.Less(t, time.Since(begun), time.Minute)
		})
	})
	t.Run("with the context", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFixture()
			failing(f.client, "create", 99, errUnreachable)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := f.registrar.Up(ctx, a10("i-1"))
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			assert.ErrorIs(t, err, errUnreachable)
		})
	})
}

func TestTuneLeavesTheOriginalAlone(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:6443"}
	tuned := nodes.Tune(config)
	assert.Equal(t, config.Host, tuned.Host)
	assert.GreaterOrEqual(t, tuned.QPS, float32(100))
	assert.Zero(t, config.QPS)
}
