package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/rig"
)

func countRunning(ctx context.Context, s *suite, pods []*corev1.Pod) int {
	n := 0
	for _, wanted := range pods {
		if pod, err := s.pod(ctx, wanted.Name); err == nil && pod != nil && pod.Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

func TestIdleNodesAreGivenBackAfterTheDelayAndOutsideTheCooldown(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		tags map[string]string
		stay time.Duration // after the last pod has gone
	}{
		"the delay is the pool's own": {
			tags: map[string]string{"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime": "8s"},
			stay: 7 * time.Second,
		},
		"the cooldown outlasts the delay": {
			tags: map[string]string{
				"k8s.io/cluster-autoscaler/node-template/autoscaling-options/scaledownunneededtime": "1s",
				"gpu-spot.autoscaling/cooldown": "60s",
			},
			stay: 5 * time.Second,
		},
	} {
		t.Run(name, func(t *testing.T) {
			patient := spotPool("asg-1", 10)
			for key, value := range test.tags {
				patient.Tags[key] = value
			}
			s := newSuite(t, newWorld(patient))
			s.RunAutoscaler(t)
			pods := gpuPods("train", 2)
			s.Submit(t, pods...)
			s.awaitRunning(pods...)
			s.deletePods(pods...)
			rig.Always(t, test.stay, "both nodes stay", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
			s.eventually("both nodes are given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 0, nil })
			assert.Len(t, s.requests("RemoveInstances"), 1, "together")
			s.eventually("their Nodes go", func(ctx context.Context) (bool, error) {
				nodes, err := s.nodes(ctx)
				return len(nodes) == 0, err
			})
		})
	}
}

func TestMinimumOfAPoolHolds(t *testing.T) {
	kept := spotPool("asg-1", 10)
	kept.Instances = 3
	kept.Tags["gpu-spot.autoscaling/min-size"] = "2"
	s := newSuite(t, newWorld(kept))
	s.RunAutoscaler(t)
	s.eventually("one of three is given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
	rig.Always(t, 10*time.Second, "two are kept", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 2, nil })
}

// Two machines of four GPUs each end up with one GPU in use: all would fit on one of them.
func TestPodsOfABatchJobAreNotMovedToSaveAMachine(t *testing.T) {
	t.Parallel()
	const fourA10 = "ecs.gn7i-c32g1.32xlarge"
	for name, test := range map[string]struct {
		annotations map[string]string
		machines    int
	}{
		"they go on where they are":         {nil, 2},
		"they move where they say they may": {map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSuite(t, newWorld(rig.SpotPool("asg-1", 10, []string{fourA10}, []string{"vsw-a"})))
			s.Cloud.SetPrice(fourA10, zoneA, 20, 50)
			s.RunAutoscaler(t)
			var fillers, training []*corev1.Pod
			for i, name := range []string{"left", "right"} {
				filler := rig.GPUPod("filler-"+name, 3)
				s.Submit(t, filler)
				training = append(training, submitBatchJob(s, name, test.annotations))
				s.awaitRunning(filler, training[i])
				fillers = append(fillers, filler)
			}
			require.Len(t, s.instances("asg-1"), 2)
			s.deletePods(fillers...)
			if test.machines == 2 {
				for _, pod := range training {
					rig.Always(t, 8*time.Second, pod.Name+" trains on", func(ctx context.Context) (bool, error) {
						now, err := s.pod(ctx, pod.Name)
						return err != nil || now != nil && now.Status.Phase == corev1.PodRunning && now.DeletionTimestamp == nil, err
					})
				}
				assert.Len(t, s.instances("asg-1"), 2)
				return
			}
			s.eventually("one machine is given back", func(context.Context) (bool, error) { return len(s.instances("asg-1")) == 1, nil })
		})
	}
}

// submitBatchJob submits a batch Job of one GPU, and returns its pod.
func submitBatchJob(s *suite, name string, annotations map[string]string) (pod *corev1.Pod) {
	s.t.Helper()
	template := rig.GPUPod(name, 1)
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: template.Namespace},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: template.Labels, Annotations: annotations}, Spec: template.Spec,
		}},
	}
	if _, err := s.Client.BatchV1().Jobs(job.Namespace).Create(s.t.Context(), job, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the Job "+name+" has its pod", func(ctx context.Context) (bool, error) {
		pods, err := s.Client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + name})
		if err != nil || len(pods.Items) == 0 {
			return false, err
		}
		pod = &pods.Items[0]
		return true, nil
	})
	return pod
}
