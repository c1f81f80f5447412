// Package e2e holds the end-to-end tests: the real binary with the real Cluster Autoscaler core and the real SDK, between a real
// control plane and a simulated cloud. test/README.md says which file is about what.
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

func vswitches() []string { return []string{"vsw-a", "vsw-b", "vsw-c"} }

// newWorld returns a region of three zones with the pools, in the strict temper. Each delay of the cloud is shortened by itself
// and not by World.Speed, because the autoscaler's own timers go by the clock: a client token, for one, has to live as long as at
// Alibaba.
func newWorld(pools ...alisim.Pool) alisim.World {
	w := alisim.NewWorld("ap-southeast-1", zoneA, zoneB, zoneC)
	w.Pools = pools
	w.ActivityDelay = metav1.Duration{Duration: time.Second}
	w.BootDelay = metav1.Duration{Duration: time.Second}
	w.DriverDelay = metav1.Duration{Duration: time.Second}
	w.ListLag = metav1.Duration{Duration: time.Second}
	w.HealthCheckDelay = metav1.Duration{Duration: 2 * time.Second}
	w.NodeGrace = metav1.Duration{Duration: time.Second}
	w.NodeController = metav1.Duration{Duration: 5 * time.Second}
	w.NoticePeriod = metav1.Duration{Duration: 40 * time.Second}
	return w
}

// spotPool returns a pool of one type in three zones.
func spotPool(id string, maxSize int) alisim.Pool {
	return rig.SpotPool(id, maxSize, []string{a10}, vswitches())
}

// singleOfferingPool returns a pool of one type in one zone.
func singleOfferingPool(id string, maxSize int) alisim.Pool {
	return rig.SpotPool(id, maxSize, []string{a10}, []string{"vsw-a"})
}

// suite is the rig of one test: a control plane, a simulated cloud, clients of both, and what most tests ask of them.
type suite struct {
	*rig.Rig
	t *testing.T
}

// newSuite starts a rig for the test. Prices are 6 in zone a, 4 in zone b and 5 in zone c, whatever the type.
// Tests run in parallel: each has a cloud of its own, and spends most of its time waiting.
func newSuite(t *testing.T, w alisim.World) *suite {
	t.Helper()
	return newSuiteWith(t, rig.Options{World: w})
}

// newSuiteWith is newSuite with further options.
func newSuiteWith(t *testing.T, options rig.Options) *suite {
	t.Helper()
	t.Parallel()
	return startSuite(t, options)
}

// startSuite is newSuiteWith for a test that does not run in parallel.
func startSuite(t *testing.T, options rig.Options) *suite {
	t.Helper()
	s := &suite{Rig: rig.ForTestWith(t, options), t: t}
	for zone, price := range map[string]float64{zoneA: 6, zoneB: 4, zoneC: 5} {
		for _, instanceType := range []string{a10, t4} {
			s.Cloud.SetPrice(instanceType, zone, price, 10)
		}
	}
	return s
}

// eventually waits for something to become true.
func (s *suite) eventually(what string, condition func(context.Context) (bool, error)) {
	s.t.Helper()
	rig.Eventually(s.t, soon, what, condition)
}

// pod returns nil for one that is gone.
func (s *suite) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	pod, err := s.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return pod, err
}

// awaitRunning waits until the pods run.
func (s *suite) awaitRunning(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, wanted := range pods {
		s.eventually("pod "+wanted.Name+" runs", func(ctx context.Context) (bool, error) {
			pod, err := s.pod(ctx, wanted.Name)
			return pod != nil && pod.Status.Phase == corev1.PodRunning, err
		})
	}
}

// instances returns those members of the pool that are neither being removed nor reclaimed.
func (s *suite) instances(poolID string) []alisim.InstanceView {
	return slices.DeleteFunc(s.Cloud.Instances(), func(i alisim.InstanceView) bool {
		return i.ScalingGroupID != poolID || i.Lifecycle == "" || strings.HasPrefix(i.Lifecycle, "Removing") || !i.Deadline.IsZero()
	})
}

// zonesOf counts the living instances of the pool by zone.
func (s *suite) zonesOf(poolID string) map[string]int {
	zones := map[string]int{}
	for _, instance := range s.instances(poolID) {
		zones[instance.Zone]++
	}
	return zones
}

// requests are those of the action that came in so far, without those that were for a plan only.
func (s *suite) requests(action string) []alisim.RequestView {
	return slices.DeleteFunc(s.Cloud.Requests(action), func(request alisim.RequestView) bool {
		return request.Parameters["ExecutionMode"] == "PlanOnly"
	})
}

// node returns the Node of the instance, nil while there is none.
func (s *suite) node(ctx context.Context, instanceID string) (*corev1.Node, error) {
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

// awaitEvent waits for an Event with the reason whose message has all the words.
func (s *suite) awaitEvent(reason string, words ...string) {
	s.t.Helper()
	s.eventually("an Event "+reason+" with "+strings.Join(words, ", "), func(ctx context.Context) (bool, error) {
		messages, err := s.Events(ctx, reason)
		return slices.ContainsFunc(messages, func(message string) bool {
			return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(message, word) })
		}), err
	})
}

// injectFault makes the simulated cloud fail as described.
func (s *suite) injectFault(fault alisim.Fault) {
	s.t.Helper()
	if err := s.Cloud.Fault(fault); err != nil {
		s.t.Fatal(err)
	}
}

// deletePods deletes the pods at once.
func (s *suite) deletePods(pods ...*corev1.Pod) {
	s.t.Helper()
	for _, pod := range pods {
		if err := s.Client.CoreV1().Pods(pod.Namespace).Delete(s.t.Context(), pod.Name, *metav1.NewDeleteOptions(0)); err != nil {
			s.t.Fatal(err)
		}
	}
}

// gpuPods returns n independent pods of one GPU each.
func gpuPods(name string, n int) (pods []*corev1.Pod) {
	for i := range n {
		pods = append(pods, rig.GPUPod(name+"-"+string(rune('a'+i)), 1))
	}
	return pods
}

// nodes returns all Nodes.
func (s *suite) nodes(ctx context.Context) ([]corev1.Node, error) {
	list, err := s.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// oidcTokenFile writes a real token of a ServiceAccount, as RRSA projects it into the pod, and returns the file.
func oidcTokenFile(s *suite) string {
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

// applyModuleManifest applies a manifest from the source of a Go module that go.mod requires.
func applyModuleManifest(s *suite, module, path string) {
	s.t.Helper()
	directory, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		s.t.Fatal(err)
	}
	manifest, err := os.Open(filepath.Join(strings.TrimSpace(string(directory)), path))
	if err != nil {
		s.t.Fatal(err)
	}
	defer manifest.Close()
	if err := s.Cluster.ApplyYAML(s.t.Context(), manifest); err != nil {
		s.t.Fatal(err)
	}
}
