// Package e2e tells stories: the real binary, the real Cluster Autoscaler core, a real control plane and the real SDK,
// in a simulated cloud.
package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

const (
	t4  = "ecs.gn6i-c8g1.2xlarge"
	a10 = "ecs.gn7i-c8g1.2xlarge"

	zoneA, zoneB, zoneC = "ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"

	// soon is for what takes seconds, on a machine that has other things to do.
	soon = 2 * time.Minute
)

func zones() []string { return []string{"vsw-a", "vsw-b", "vsw-c"} }

// world is three zones, quick machines, and the pools, in the strict temper. What the cloud takes its time for is short
// here thing by thing and not by a speed: the autoscaler's own timers go by the clock, so that a token, for one, must live
// as long as it really does.
func world(pools ...alisim.Pool) alisim.World {
	return alisim.World{
		Region: "ap-southeast-1",
		VSwitches: []alisim.VSwitch{
			{ID: "vsw-a", Zone: zoneA}, {ID: "vsw-b", Zone: zoneB}, {ID: "vsw-c", Zone: zoneC},
		},
		Pools:            pools,
		ActivityDelay:    metav1.Duration{Duration: time.Second},
		BootDelay:        metav1.Duration{Duration: time.Second},
		DriverDelay:      metav1.Duration{Duration: time.Second},
		ListLag:          metav1.Duration{Duration: time.Second},
		HealthCheckDelay: metav1.Duration{Duration: 2 * time.Second},
		NodeGrace:        metav1.Duration{Duration: time.Second},
		NodeController:   metav1.Duration{Duration: 5 * time.Second},
		NoticePeriod:     metav1.Duration{Duration: 40 * time.Second},
	}
}

// pool is one type in three zones.
func pool(id string, maxSize int) alisim.Pool {
	return rig.SpotPool(id, maxSize, []string{a10}, zones())
}

// single is one type in one zone.
func single(id string, maxSize int) alisim.Pool {
	return rig.SpotPool(id, maxSize, []string{a10}, []string{"vsw-a"})
}

// story is a rig and what its stories ask of it.
type story struct {
	*rig.Rig
	t *testing.T
}

// tell starts the world. Prices are 6 in zone a, 4 in zone b and 5 in zone c, whatever the type.
// Stories are told side by side: each has a world of its own, and most of its time is waiting.
func tell(t *testing.T, w alisim.World) *story {
	t.Helper()
	return tellWith(t, rig.Options{World: w})
}

// tellWith is tell with further options.
func tellWith(t *testing.T, options rig.Options) *story {
	t.Helper()
	t.Parallel()
	s := &story{Rig: rig.ForTestWith(t, options), t: t}
	for zone, price := range map[string]float64{zoneA: 6, zoneB: 4, zoneC: 5} {
		for _, instanceType := range []string{a10, t4} {
			s.Cloud.SetPrice(instanceType, zone, price, 10)
		}
	}
	return s
}

// eventually waits for something to become true.
func (s *story) eventually(what string, condition func(context.Context) (bool, error)) {
	s.t.Helper()
	rig.Eventually(s.t, soon, what, condition)
}

// pod returns nil for one that is gone.
func (s *story) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// running waits until the pods run.
func (s *story) running(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, wanted := range pods {
		s.eventually("pod "+wanted.Name+" runs", func(ctx context.Context) (bool, error) {
			pod, err := s.pod(ctx, wanted.Name)
			return pod != nil && pod.Status.Phase == corev1.PodRunning, err
		})
	}
}

// instances are those that live in the pool, running and not about to go.
func (s *story) instances(poolID string) []alisim.InstanceView {
	return slices.DeleteFunc(s.Cloud.Instances(), func(i alisim.InstanceView) bool {
		return i.ScalingGroupID != poolID || i.Lifecycle == "" || strings.HasPrefix(i.Lifecycle, "Removing") || !i.Deadline.IsZero()
	})
}

// zonesOf counts the living instances of the pool by zone.
func (s *story) zonesOf(poolID string) map[string]int {
	zones := map[string]int{}
	for _, instance := range s.instances(poolID) {
		zones[instance.Zone]++
	}
	return zones
}

// requests are those of the action that came in so far, without those that were for a plan only.
func (s *story) requests(action string) []alisim.RequestView {
	return slices.DeleteFunc(s.Cloud.Requests(action), func(request alisim.RequestView) bool {
		return request.Parameters["ExecutionMode"] == "PlanOnly"
	})
}

// node returns the Node of the instance, nil while there is none.
func (s *story) node(ctx context.Context, instanceID string) (*corev1.Node, error) {
	nodes, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, node := range nodes.Items {
		if strings.HasSuffix(node.Spec.ProviderID, "."+instanceID) {
			return &node, nil
		}
	}
	return nil, nil
}

// told waits for an Event with the reason and the words.
func (s *story) told(reason string, words ...string) {
	s.t.Helper()
	s.eventually("an Event "+reason+" with "+strings.Join(words, ", "), func(ctx context.Context) (bool, error) {
		messages, err := s.Events(ctx, reason)
		return slices.ContainsFunc(messages, func(message string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(message, word) })
		}), err
	})
}

// fault switches a fault on.
func (s *story) fault(fault alisim.Fault) {
	s.t.Helper()
	if err := s.Cloud.Fault(fault); err != nil {
		s.t.Fatal(err)
	}
}

// remove deletes the pods at once.
func (s *story) remove(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		if err := s.Client.CoreV1().Pods(pod.Namespace).Delete(s.t.Context(), pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// gpuPods are n pods of one GPU each that may live apart.
func gpuPods(name string, n int) (pods []*corev1.Pod) {
	for i := range n {
		pods = append(pods, rig.GPUPod(name+"-"+string(rune('a'+i)), 1))
	}
	return pods
}

// nodes are all Nodes there are.
func (s *story) nodes(ctx context.Context) ([]corev1.Node, error) {
	list, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// oidcToken writes a real token of a ServiceAccount, as RRSA projects it into the pod, and returns the file.
func (s *story) oidcToken() string {
	s.t.Helper()
	token, err := s.Client.CoreV1().ServiceAccounts(rig.Namespace).CreateToken(s.t.Context(), rig.ServiceAccount,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token.Status.Token), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// install applies a manifest that a module of ours ships.
func (s *story) install(module, path string) {
	s.t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	manifest, err := os.Open(filepath.Join(strings.TrimSpace(string(folder)), path))
	if err != nil {
		s.t.Fatal(err)
	}
	defer manifest.Close()
	if err := s.Cluster.ApplyYAML(s.t.Context(), manifest); err != nil {
		s.t.Fatal(err)
	}
}
