package releaseall

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/metadata"
	metadatafake "k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
	"gpu-spot-autoscaler/cloudprovider/patch/patchtest"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig"
)

func noObjects() dynamic.Interface {
	kinds := map[schema.GroupVersionResource]string{}
	for _, system := range systems.All(jobs.Cluster{}) {
		kinds[system.Resource()] = system.Resource().Resource + "List"
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
}

func noMetadata(objects ...runtime.Object) metadata.Interface {
	scheme := runtime.NewScheme()
	_ = metav1.AddMetaToScheme(scheme)
	return metadatafake.NewSimpleMetadataClient(scheme, objects...)
}

// world is a cluster with an autoscaler of so many replicas.
type world struct {
	*fake.Clientset
	metadata metadata.Interface
	replicas atomic.Int32
}

func newWorld(replicas int32) *world {
	warned := &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "warned", UID: "uid", Annotations: map[string]string{
			api.AnnotationCheckpointRequest: "x", api.AnnotationReclaimDeadline: "y", api.AnnotationAwaitCheckpoint: "true",
		}},
	}
	objects := []runtime.Object{nodeWith("a", reclaiming(now.AddDate(-100, 0, 0))), nodeWith("b", nil)}
	for _, name := range []string{"autoscaler-status", "autoscaler-ledger", "autoscaler-market", "theirs"} {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}})
	}
	w := &world{Clientset: newClient(objects...), metadata: noMetadata(warned)}
	w.replicas.Store(replicas)
	w.PrependReactor("*", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "scale" {
			return false, nil, nil
		}
		if update, ok := action.(clienttesting.UpdateAction); ok {
			w.replicas.Store(update.GetObject().(*autoscalingv1.Scale).Spec.Replicas)
		}
		return true, &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: w.replicas.Load()}, Status: autoscalingv1.ScaleStatus{Selector: "app=autoscaler"}}, nil
	})
	return w
}

// run runs the command in the world.
func (w *world) run(t *testing.T, f flags) (*Report, error) {
	t.Helper()
	f.namespace, f.name = "kube-system", "autoscaler"
	ctx, cancel := context.WithTimeout(t.Context(), defaultTimeout)
	defer cancel()
	r, err := newReleaser(ctx, f, clients{w.Clientset, noObjects(), w.metadata}, clock.RealClock{}, io.Discard)
	require.NoError(t, err)
	err = r.run(ctx)
	return &r.report, err
}

func (w *world) configMaps(t *testing.T) (names []string) {
	t.Helper()
	list, err := w.CoreV1().ConfigMaps("kube-system").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, configMap := range list.Items {
		names = append(names, configMap.Name)
	}
	return names
}

func TestWhatTheAutoscalerHasPutOnTheClusterIsTakenOffAndTwiceIsHarmless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		report, err := w.run(t, flags{})
		require.NoError(t, err)
		assert.False(t, report.failed(), "%v", report.Faults)
		assert.EqualValues(t, 2, report.ScaledFrom)
		assert.Zero(t, w.replicas.Load())
		assert.Equal(t, []string{"theirs"}, w.configMaps(t))
		assert.Equal(t, "removed", report.Lease)
		node, err := w.CoreV1().Nodes().Get(t.Context(), "a", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, nodeWith("a", nil).Spec, node.Spec)
		assert.Equal(t, 1, report.Pods)
		pod, err := w.metadata.Resource(pods).Namespace("ml").Get(t.Context(), "warned", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, map[string]string{api.AnnotationAwaitCheckpoint: "true"}, pod.Annotations)

		report, err = w.run(t, flags{})
		require.NoError(t, err)
		assert.False(t, report.failed())
		assert.Empty(t, report.Nodes)
		assert.Zero(t, report.Pods)
		assert.Empty(t, report.ConfigMaps)
	})
}

func TestTheCostLedgerStaysUntilAllIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		isDown := true
		w.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			return isDown, nil, apierrors.NewServiceUnavailable("down")
		})
		report, err := w.run(t, flags{})
		require.NoError(t, err)
		assert.True(t, report.failed())
		assert.Equal(t, []string{"autoscaler-ledger", "autoscaler-market", "theirs"}, w.configMaps(t), "the next run finds the instances in it")
		isDown = false
		report, err = w.run(t, flags{})
		require.NoError(t, err)
		assert.False(t, report.failed(), "%v", report.Faults)
		assert.Equal(t, []string{"theirs"}, w.configMaps(t))
	})
}

func TestAPodThatWasMadeAnewMeanwhileHasNoWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		w.metadata.(*metadatafake.FakeMetadataClient).PrependReactor("patch", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, patchtest.AnotherUID("Pod", "warned")
		})
		report, err := w.run(t, flags{})
		require.NoError(t, err)
		assert.False(t, report.failed(), "%v", report.Faults)
	})
}

func TestTheStateIsKeptIfItIsToBe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(1)
		_, err := w.run(t, flags{keepState: true})
		require.NoError(t, err)
		assert.Equal(t, []string{"autoscaler-ledger", "autoscaler-market", "theirs"}, w.configMaps(t))
	})
}

func TestADryRunChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		w.PrependReactor("delete", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			assert.Equal(t, []string{metav1.DryRunAll}, action.(clienttesting.DeleteActionImpl).DeleteOptions.DryRun)
			return true, nil, nil
		})
		report, err := w.run(t, flags{dryRun: true})
		require.NoError(t, err)
		assert.Len(t, report.Nodes, 1)
		assert.Equal(t, 1, report.Pods)
		assert.Len(t, report.ConfigMaps, 3)
		assert.EqualValues(t, 2, w.replicas.Load())
		assert.Contains(t, report.text(), "nothing was changed")
		for _, action := range w.Actions() {
			assert.Contains(t, []string{"get", "list", "delete"}, action.GetVerb(), "%v", action)
		}
	})
}

func TestWhatScalesTheDeploymentUpAgainIsNamedAndNoAutoscalerActs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		w.PrependReactor("list", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
			w.replicas.Store(2) // such as a tool that applies a repository
			return false, nil, nil
		})
		report, err := w.run(t, flags{})
		require.NoError(t, err)
		require.Len(t, report.Faults, 1)
		assert.Contains(t, report.Faults[0], "Something has scaled the Deployment kube-system/autoscaler to 2 again")
		assert.Contains(t, report.Lease, "held until")
		assert.Equal(t, []string{"autoscaler-status"}, report.ConfigMaps, "it goes on with the rest")
		started := newCandidate(t, w, "pod-of-theirs")
		time.Sleep(keepFor - time.Minute)
		assert.False(t, isClosed(started.leading))
		started.stop()
	})
}

func TestPodsOfTheDeploymentThatHaveEndedAreNotWaitedFor(t *testing.T) {
	for phase, waits := range map[corev1.PodPhase]bool{corev1.PodFailed: false, corev1.PodSucceeded: false, corev1.PodRunning: true} {
		t.Run(string(phase), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1)
				_, err := w.CoreV1().Pods("kube-system").Create(t.Context(), &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: "evicted", Labels: map[string]string{"app": "autoscaler"}}, Status: corev1.PodStatus{Phase: phase},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
				began := time.Now()
				report, err := w.run(t, flags{})
				require.NoError(t, err)
				assert.Equal(t, waits, time.Since(began) >= podPatience)
				assert.Equal(t, waits, strings.Contains(report.text(), "have not ended"))
			})
		})
	}
}

func TestWithoutADeploymentTheRestIsReleasedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(0)
		w.PrependReactor("*", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(corev1.Resource("deployments"), "autoscaler")
		})
		report, err := w.run(t, flags{})
		require.NoError(t, err)
		assert.False(t, report.failed())
		assert.Len(t, report.Nodes, 1)
		assert.Contains(t, report.text(), "There is no Deployment kube-system/autoscaler.")
	})
}

func TestNothingIsTouchedIfTheAutoscalerCannotBeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(2)
		w.PrependReactor("update", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("deployments"), "autoscaler", nil)
		})
		_, err := w.run(t, flags{})
		assert.ErrorContains(t, err, "scale Deployment kube-system/autoscaler to zero")
		for _, action := range w.Actions() {
			assert.Equal(t, "deployments", action.GetResource().Resource)
		}
	})
}

func TestTheSummarySaysWhatStaysAndWhatItCosts(t *testing.T) {
	report := Report{
		Namespace: "kube-system", Name: "autoscaler", ScaledFrom: 2, Lease: "removed", ConfigMaps: []string{"autoscaler-status"},
		Jobs: []Job{
			{Job: "job/ml/b", Held: "suspended", Outcome: outcomeResumed}, {Job: "job/ml/a", Held: "suspended", Error: "no"},
			{Job: "job/ml/c", Held: "suspended", Outcome: outcomeSuspended},
		},
		Nodes:     []Node{{Name: "n", Marks: []string{"reclaim"}, Leaving: true}},
		Instances: &Instances{Count: 2, AsOf: now, PerHour: 12.5, Currency: "CNY", Pools: map[string][]string{"asg-1": {"i-1", "i-2"}}},
	}
	var out bytes.Buffer
	require.NoError(t, report.write(&out, outputText))
	for _, want := range []string{
		"kube-system/autoscaler, scaled from 2 replicas to 0", "3 were held", "job/ml/a FAILED, and stays suspended: no", "job/ml/b resumed",
		"only its owner resumes it", "n (reclaim) keeps them", "2 stay, and cost 12.500 CNY per hour, as of 2026-11-26T08:00:00Z", "still delivered",
		"aliyun ess RemoveInstances --ScalingGroupId asg-1 --RemovePolicy release --InstanceId.1 i-1 --InstanceId.2 i-2",
	} {
		assert.Contains(t, out.String(), want)
	}
	assert.Less(t, bytes.Index(out.Bytes(), []byte("job/ml/a")), bytes.Index(out.Bytes(), []byte("job/ml/b")))

	out.Reset()
	require.NoError(t, report.write(&out, outputJSON))
	var read Report
	require.NoError(t, json.Unmarshal(out.Bytes(), &read))
	assert.Equal(t, report, read)
}

func TestBadFlagsAreRefused(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), flags{output: "yaml", timeout: 1}, nil, nil), "want text or json")
	assert.ErrorContains(t, run(t.Context(), flags{output: outputText}, nil, nil), "--timeout 0s")
	assert.ErrorContains(t, run(t.Context(), flags{output: outputText, timeout: 1, cluster: kubeconfig.Flags{File: "/nowhere"}}, nil, nil), "give --kubeconfig")
}
