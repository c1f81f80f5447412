package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// As `arena submit etjob --workers=4 --min-workers=2 --max-workers=8 --spot-instance --max-wait-time=600` renders it, with
// the status that et-operator gives it.
const etJob = `
apiVersion: kai.alibabacloud.com/v1alpha1
kind: TrainingJob
metadata:
  name: mnist
  uid: uid-mnist
  annotations:
    job-supervisor.kube-ai.io/spot-instance: "true"
    job-supervisor.kube-ai.io/max-wait-time: "600"
spec:
  backoffLimit: 3
  cleanPodPolicy: Running
  slotsPerWorker: 1
  etReplicaSpecs:
    launcher:
      replicas: 1
      template:
        spec:
          containers:
            - name: mnist
              image: horovod:0.20
              command: [sh, -c, "horovodrun --verbose --log-level=DEBUG -np 4 --min-np 2 --max-np 8 --host-discovery-script /etc/edl/discover_hosts.sh python elastic.py"]
              resources: {limits: {cpu: "2"}}
    worker:
      replicas: 4
      minReplicas: 2
      maxReplicas: 8
      restartPolicy: OnFailure
      template:
        metadata:
          labels: {app: etjob}
          annotations: {gpu-spot.autoscaling/await-checkpoint: "true"}
        spec:
          tolerations: [{operator: Exists}]
          containers:
            - name: mnist
              image: horovod:0.20
              resources: {limits: {nvidia.com/gpu: 1, cpu: "8"}}
status:
  phase: Running
  conditions: [{type: Created, status: "True"}, {type: Running, status: "True"}]
  currentWorkers: [mnist-worker-0, mnist-worker-1, mnist-worker-2, mnist-worker-3]
  targetWorkers: [mnist-worker-0, mnist-worker-1, mnist-worker-2, mnist-worker-3]
  replicaStatuses: {Launcher: {active: 1}, Worker: {active: 4}}
  restartCount: 0
`

const heldPatch = `"metadata":{"annotations":{"gpu-spot.autoscaling/held-reason":"reclaim","gpu-spot.autoscaling/held-replicas":"4",` +
	`"gpu-spot.autoscaling/held-since":"` + epochText + `"},"labels":{"gpu-spot.autoscaling/held":"%s"},"uid":"uid-mnist"}`

func TestTrainingJobMembers(t *testing.T) {
	pod := `
apiVersion: v1
kind: Pod
metadata:
  name: mnist-%s
  labels: {group-name: kai.alibabacloud.com, training-job-name: mnist, training-job-role: %s, replica-index: "0"}
`
	membersOf(t, map[string]Membership{
		"mnist-launcher": {refOf("trainingjob", "mnist"), RoleLauncher},
		"mnist-worker-0": {refOf("trainingjob", "mnist"), RoleWorker},
	}, fmt.Sprintf(pod, "launcher", "launcher"), fmt.Sprintf(pod, "worker-0", "worker"))
}

func TestTrainingJobIsRead(t *testing.T) {
	w := newWorld(t, etJob)
	job := w.get("trainingjob", "mnist")
	assert.Equal(t, []int{2, 8, 4}, []int{job.Min, job.Max, job.Replicas})
	assert.EqualValues(t, "uid-mnist", job.UID)
	assert.Equal(t, "10m0s", job.MaxWait.String())
	assert.Equal(t, RecoverFull, job.Recovery)
	assert.False(t, job.Suspended || job.Finished)

	w.set(w.registry.byName["trainingjob"].Resource(), "mnist", []any{"mnist-worker-0", "mnist-worker-5"}, "status", "targetWorkers")
	assert.Equal(t, 2, w.get("trainingjob", "mnist").Replicas, "what the operator aims at goes before the spec")

	for phase, want := range map[string]int{"": 4, "Created": 4, "Running": 2, "Scaling": 2} {
		w := newWorld(t, etJob)
		w.set(w.registry.byName["trainingjob"].Resource(), "mnist", phase, "status", "phase")
		assert.Equal(t, want, w.get("trainingjob", "mnist").Min, "phase %q: it needs all before it trains", phase)
	}
	for phase, want := range map[string]Job{
		"Suspended": {Suspended: true}, "Succeeded": {Finished: true}, "Failed": {Finished: true}, "Scaling": {},
	} {
		w.set(w.registry.byName["trainingjob"].Resource(), "mnist", phase, "status", "phase")
		job := w.get("trainingjob", "mnist")
		assert.Equal(t, want, Job{Suspended: job.Suspended, Finished: job.Finished}, phase)
	}
	w.set(w.registry.byName["trainingjob"].Resource(), "mnist", "OnFailure", "spec", "restartPolicy")
	w.set(w.registry.byName["trainingjob"].Resource(), "mnist", "Failed", "status", "phase")
	assert.False(t, w.get("trainingjob", "mnist").Finished, "the operator restarts it")
}

func TestTrainingJobShrinksByOneScaleInOfTheNamedPods(t *testing.T) {
	w := newWorld(t, etJob)
	job := w.get("trainingjob", "mnist")
	doomed := []string{"mnist-worker-3", "mnist-worker-1", "mnist-worker-1", "mnist-launcher", "another-worker-0"}
	require.NoError(t, w.registry.Shrink(context.Background(), job, doomed))

	writes := w.writes()
	require.Len(t, writes, 2)
	assert.Equal(t, "patch trainingjobs {"+fmt.Sprintf(heldPatch, "shrunk")+"}", writes[0], "marked first: a crash leaves a job that is found again")
	assert.Regexp(t, `^create scaleins mnist-spot-in-[0-9a-f]{10}-0 {"selector":{"name":"mnist"},"toDelete":{"podNames":\["mnist-worker-1","mnist-worker-3"]}}$`, writes[1])
	name := strings.Fields(writes[1])[2]
	assert.Empty(t, w.object(scaleIns, name).GetOwnerReferences(), "the operator sets it, and with it the status that it needs")
	assert.Equal(t, []string{ReasonShrunk}, w.events())

	require.NoError(t, w.registry.Shrink(context.Background(), job, doomed))
	assert.Empty(t, w.writes(), "the same again")
	assert.Empty(t, w.events())

	var busy *BusyError
	require.ErrorAs(t, w.registry.Shrink(context.Background(), job, []string{"mnist-worker-0"}), &busy)
	assert.Equal(t, "ScaleIn "+name, busy.With)
	assert.Empty(t, w.writes(), "one at a time")
}

func TestTrainingJobIsNotShrunkBelowItsMinimum(t *testing.T) {
	w := newWorld(t, etJob)
	err := w.registry.Shrink(context.Background(), w.get("trainingjob", "mnist"), []string{"mnist-worker-1", "mnist-worker-2", "mnist-worker-3"})
	require.ErrorIs(t, err, ErrUnsupported)
	assert.Empty(t, w.writes())
}

func TestTrainingJobGrowsByOneScaleOutAndIsThenWhole(t *testing.T) {
	w := newWorld(t, etJob)
	ctx := context.Background()
	jobs := w.registry.byName["trainingjob"].Resource()
	require.NoError(t, w.registry.Shrink(ctx, w.get("trainingjob", "mnist"), []string{"mnist-worker-2", "mnist-worker-3"}))
	scaleIn := strings.Fields(w.writes()[1])[2]
	var busy *BusyError
	require.ErrorAs(t, w.registry.Grow(ctx, w.get("trainingjob", "mnist"), 4), &busy, "it has all its workers, but the ScaleIn has yet to begin")
	assert.Equal(t, HeldShrunk, w.object(jobs, "mnist").GetLabels()[api.LabelHeld])
	w.end(scaleIns, scaleIn, "ScaleSucceeded")
	w.set(jobs, "mnist", []any{"mnist-worker-0", "mnist-worker-1"}, "status", "targetWorkers")
	w.events()

	shrunk := w.get("trainingjob", "mnist")
	assert.Equal(t, 2, shrunk.Replicas)
	w.writes()
	require.NoError(t, w.registry.Grow(ctx, shrunk, 4))
	writes := w.writes()
	require.Len(t, writes, 1)
	assert.Regexp(t, `^create scaleouts mnist-spot-out-[0-9a-f]{10}-0 {"selector":{"name":"mnist"},"timeout":300,"toAdd":{"count":2}}$`, writes[0])
	require.NoError(t, w.registry.Grow(ctx, shrunk, 4))
	assert.Empty(t, w.writes(), "the same again")

	w.end(scaleOuts, strings.Fields(writes[0])[2], "ScaleSucceeded")
	w.set(jobs, "mnist", []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2", "mnist-worker-3"}, "status", "targetWorkers")
	w.writes()
	require.NoError(t, w.registry.Grow(ctx, shrunk, 4))
	assert.Len(t, w.writes(), 1)
	assert.Empty(t, w.object(jobs, "mnist").GetLabels())

	// Worker 2 has its name from the first one of it. It is lost once more.
	require.NoError(t, w.registry.Shrink(ctx, shrunk, []string{"mnist-worker-2", "mnist-worker-3"}))
	again := w.writes()
	require.Len(t, again, 2)
	assert.Contains(t, again[1], strings.TrimSuffix(scaleIn, "-0")+"-1 ")
}

func TestTrainingJobThatIsShrunkOnceMoreKeepsWhatItHadAtFirst(t *testing.T) {
	w := newWorld(t, etJob)
	ctx := context.Background()
	jobs := w.registry.byName["trainingjob"].Resource()
	for i, worker := range []string{"mnist-worker-3", "mnist-worker-2"} {
		w.clock.SetTime(epoch.Add(time.Duration(i) * time.Hour))
		require.NoError(t, w.registry.Shrink(ctx, w.get("trainingjob", "mnist"), []string{worker}))
		w.end(scaleIns, strings.Fields(w.writes()[1])[2], "ScaleSucceeded")
		w.set(jobs, "mnist", []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2"}[:3-i], "status", "targetWorkers")
	}
	annotations := w.object(jobs, "mnist").GetAnnotations()
	assert.Equal(t, "4", annotations[api.AnnotationHeldReplicas])
	assert.Equal(t, "2026-05-01T09:00:00Z", annotations[api.AnnotationHeldSince])

	w.set(jobs, "mnist", "Suspended", "status", "phase")
	w.writes()
	require.NoError(t, w.registry.Shrink(ctx, w.get("trainingjob", "mnist"), []string{"mnist-worker-1"}))
	require.NoError(t, w.registry.Grow(ctx, w.get("trainingjob", "mnist"), 4))
	assert.Empty(t, w.writes(), "suspended, it has no workers to lose or to gain")
}

func TestTrainingJobScaleInThatFailsIsNotRepeatedForEver(t *testing.T) {
	w := newWorld(t, etJob)
	job := w.get("trainingjob", "mnist")
	for range maxFailedScalers {
		require.NoError(t, w.registry.Shrink(context.Background(), job, []string{"mnist-worker-2"}))
		writes := w.writes()
		w.end(scaleIns, strings.Fields(writes[len(writes)-1])[2], "ScaleFailed")
	}
	w.writes()
	require.ErrorContains(t, w.registry.Shrink(context.Background(), job, []string{"mnist-worker-2"}), "failed 3 times")
	assert.Empty(t, w.writes())

	w.clock.SetTime(epoch.Add(failedScalerAge))
	require.NoError(t, w.registry.Shrink(context.Background(), job, []string{"mnist-worker-2"}), "for another reclaim, it is tried again")
	assert.Len(t, w.writes(), 2)
}

// scalers are the names of those that are there.
func (w *world) scalers() (names []string) {
	w.Helper()
	for _, resource := range []schema.GroupVersionResource{scaleIns, scaleOuts} {
		list, err := w.dynamic.Resource(resource).Namespace("ml").List(context.Background(), metav1.ListOptions{})
		require.NoError(w, err)
		for i := range list.Items {
			names = append(names, list.Items[i].GetName())
		}
	}
	return names
}

// begin has the operator note which pods the scaler is about.
func (w *world) begin(resource schema.GroupVersionResource, name string, pods ...any) {
	w.Helper()
	field := map[schema.GroupVersionResource]string{scaleIns: "toDeletePods", scaleOuts: "addPods"}[resource]
	w.set(resource, name, pods, "status", field)
	w.writes()
}

const foreignScaleIn = `
apiVersion: kai.alibabacloud.com/v1alpha1
kind: ScaleIn
metadata: {name: theirs}
spec: {selector: {name: %s}, toDelete: {podNames: [mnist-worker-3]}}
`

func TestTrainingJobScaleInIsTakenBackUnlessItHasBegun(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, etJob, fmt.Sprintf(foreignScaleIn, "another"))
	ref := refOf("trainingjob", "mnist")
	doomed := []string{"mnist-worker-2", "mnist-worker-3"}
	shrinking := func() bool {
		leaving, err := w.registry.Shrinking(ctx, ref, append(doomed, "mnist-worker-0"))
		require.NoError(t, err)
		if len(leaving) > 0 {
			require.Equal(t, doomed, leaving, "no others")
		}
		return len(leaving) > 0
	}
	require.False(t, shrinking())
	require.NoError(t, w.registry.Shrink(ctx, w.get("trainingjob", "mnist"), doomed))
	ours := w.scalers()[0]
	require.True(t, shrinking())
	w.begin(scaleIns, ours, "mnist-worker-2", "mnist-worker-3")
	require.True(t, shrinking())
	require.NoError(t, w.registry.CancelShrink(ctx, ref, doomed))
	assert.Contains(t, w.scalers(), ours, "it keeps to its pods")

	w.begin(scaleIns, ours)
	require.NoError(t, w.registry.CancelShrink(ctx, ref, []string{"mnist-worker-0"}))
	assert.Contains(t, w.scalers(), ours, "its pods are there")
	require.NoError(t, w.registry.CancelShrink(ctx, ref, []string{"mnist-worker-2"}))
	assert.Equal(t, []string{"theirs"}, w.scalers(), "it would be carried out on all workers")
	assert.False(t, shrinking())

	require.NoError(t, w.registry.CancelShrink(ctx, refOf("pytorchjob", "mnist"), doomed))
	require.ErrorIs(t, w.registry.CancelShrink(ctx, refOf("pod", "mnist"), doomed), ErrNoObject)
}

func TestTrainingJobThatBeganAnewIsNotShrinking(t *testing.T) {
	w := newWorld(t, etJob)
	require.NoError(t, w.registry.Shrink(context.Background(), w.get("trainingjob", "mnist"), []string{"mnist-worker-3"}))
	for phase, want := range map[string]bool{"Running": true, "Scaling": true, "Created": false, "Failed": false, "": false, "Suspended": false} {
		w.set(w.registry.byName["trainingjob"].Resource(), "mnist", phase, "status", "phase")
		leaving, err := w.registry.Shrinking(context.Background(), refOf("trainingjob", "mnist"), []string{"mnist-worker-3"})
		require.NoError(t, err)
		assert.Equal(t, want, len(leaving) > 0, "phase %q", phase)
	}
}

func TestTrainingJobScaleInThatHasYetToBeginMakesRoomForOneOfMore(t *testing.T) {
	w := newWorld(t, etJob)
	job := w.get("trainingjob", "mnist")
	require.NoError(t, w.registry.Shrink(context.Background(), job, []string{"mnist-worker-3"}))
	first := w.scalers()[0]
	require.NoError(t, w.registry.Shrink(context.Background(), job, []string{"mnist-worker-2", "mnist-worker-3"}))
	second := w.scalers()
	require.Len(t, second, 1)
	assert.NotEqual(t, first, second[0])
	w.begin(scaleIns, second[0], "mnist-worker-2", "mnist-worker-3")
	var busy *BusyError
	require.ErrorAs(t, w.registry.Shrink(context.Background(), job, []string{"mnist-worker-1", "mnist-worker-3"}), &busy)
}

func TestTrainingJobMeetsNoScalerOfItsFormerLife(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, etJob, fmt.Sprintf(foreignScaleIn, "mnist"), strings.Replace(fmt.Sprintf(foreignScaleIn, "another"), "theirs", "of-another", 1))
	jobs := w.registry.byName["trainingjob"].Resource()
	w.begin(scaleIns, "theirs", "mnist-worker-3")
	require.NoError(t, w.registry.Suspend(ctx, w.get("trainingjob", "mnist"), ReasonReclaim))
	assert.Equal(t, []string{"of-another"}, w.scalers(), "one that has begun goes too: the workers of the next life have the same names")

	late := parse(t, fmt.Sprintf(foreignScaleIn, "mnist"))
	_, err := w.dynamic.Resource(scaleIns).Namespace("ml").Create(ctx, late, metav1.CreateOptions{})
	require.NoError(t, err)
	w.set(jobs, "mnist", "Suspended", "status", "phase")
	require.NoError(t, w.registry.Resume(ctx, w.get("trainingjob", "mnist"), 4))
	assert.Equal(t, []string{"of-another"}, w.scalers())
}

func TestTrainingJobIsSuspendedEvenIfItsScalersCannotBeRemoved(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, etJob, fmt.Sprintf(foreignScaleIn, "mnist"))
	w.dynamic.PrependReactor("delete", "scaleins", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(scaleIns.GroupResource(), "theirs", errors.New("no verb"))
	})
	require.NoError(t, w.registry.Suspend(ctx, w.get("trainingjob", "mnist"), ReasonReclaim))
	require.True(t, w.get("trainingjob", "mnist").Suspended)
	w.set(w.registry.byName["trainingjob"].Resource(), "mnist", "Suspended", "status", "phase")
	require.Error(t, w.registry.Resume(ctx, w.get("trainingjob", "mnist"), 4))
	assert.True(t, w.get("trainingjob", "mnist").Suspended, "but is not resumed to meet them")
}

func TestTrainingJobThatIsWholeAgainAsksForAllItsWorkers(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, etJob)
	jobs := w.registry.byName["trainingjob"].Resource()
	require.NoError(t, w.registry.Suspend(ctx, w.get("trainingjob", "mnist"), ReasonReclaim))
	w.set(jobs, "mnist", "Suspended", "status", "phase")
	require.NoError(t, w.registry.Resume(ctx, w.get("trainingjob", "mnist"), 2))
	w.set(jobs, "mnist", "Running", "status", "phase")
	w.set(jobs, "mnist", []any{"a", "b"}, "status", "targetWorkers")
	require.NoError(t, w.registry.Grow(ctx, w.get("trainingjob", "mnist"), 4))
	require.Len(t, w.scalers(), 1)
	w.set(jobs, "mnist", []any{"a", "b", "c", "d"}, "status", "targetWorkers") // the operator has begun it anew
	require.NoError(t, w.registry.Grow(ctx, w.get("trainingjob", "mnist"), 4))
	assert.Empty(t, w.scalers(), "it would have more workers than it asks for")
	job := w.get("trainingjob", "mnist")
	assert.Empty(t, heldAs(job))
	replicas, _, _ := unstructured.NestedInt64(job.Object.Object, workerReplicas...)
	assert.EqualValues(t, 4, replicas, "or it would begin with two when it fails")
}

// end gives a scaler the condition with which the operator ends it.
func (w *world) end(resource schema.GroupVersionResource, name, condition string) {
	w.Helper()
	w.set(resource, name, []any{map[string]any{"type": condition, "status": "True"}}, "status", "conditions")
	w.set(resource, name, w.clock.Now().UTC().Format(time.RFC3339), "metadata", "creationTimestamp")
	w.writes()
}

func TestTrainingJobIsSuspendedAsTheSupervisorDoesIt(t *testing.T) {
	w := newWorld(t, etJob)
	job := w.get("trainingjob", "mnist")
	require.NoError(t, w.registry.Suspend(context.Background(), job, ReasonReclaim))
	patch := strings.Replace(fmt.Sprintf(heldPatch, "suspended"), `"},"labels"`, `","job-supervisor.kube-ai.io/job-suspended":"true"},"labels"`, 1)
	assert.Equal(t, []string{"patch trainingjobs {" + patch + "}"}, w.writes(), "in one patch")
	stored := w.object(w.registry.byName["trainingjob"].Resource(), "mnist")
	assert.Equal(t, "true", stored.GetAnnotations()["job-supervisor.kube-ai.io/job-suspended"])
	assert.NotContains(t, stored.GetAnnotations(), "job-supervisor.kube-ai.io/job-status")
	assert.Equal(t, []string{ReasonSuspended}, w.events())

	w.writes()
	require.NoError(t, w.registry.Suspend(context.Background(), job, ReasonReclaim))
	assert.Empty(t, w.writes(), "the same again")

	require.NoError(t, w.registry.Suspend(context.Background(), job, ReasonMaxWait))
	assert.Len(t, w.writes(), 1, "for another reason")
	stored = w.object(w.registry.byName["trainingjob"].Resource(), "mnist")
	assert.Equal(t, "timeout", stored.GetAnnotations()["job-supervisor.kube-ai.io/job-status"])
	assert.Equal(t, "max-wait", stored.GetAnnotations()[api.AnnotationHeldReason])
	assert.Equal(t, []string{ReasonTimedOut}, w.events())
}

func TestTrainingJobResumesAsTheSupervisorDoesIt(t *testing.T) {
	w := newWorld(t, etJob, "{apiVersion: v1, kind: ConfigMap, metadata: {name: mnist-config, namespace: ml}}")
	ctx := context.Background()
	jobs := w.registry.byName["trainingjob"].Resource()
	require.NoError(t, w.registry.Suspend(ctx, w.get("trainingjob", "mnist"), ReasonReclaim))
	w.writes()

	var busy *BusyError
	require.ErrorAs(t, w.registry.Resume(ctx, w.get("trainingjob", "mnist"), 4), &busy, "the operator would suspend it after all")
	assert.Empty(t, w.writes())

	w.set(jobs, "mnist", "Suspended", "status", "phase")
	w.writes()
	require.NoError(t, w.registry.Resume(ctx, w.get("trainingjob", "mnist"), 4))
	assert.Equal(t, []string{
		`patch trainingjobs {"metadata":{"annotations":{"job-supervisor.kube-ai.io/job-status":null,"job-supervisor.kube-ai.io/job-suspended":null},"uid":"uid-mnist"},"spec":{"etReplicaSpecs":{"worker":{"replicas":4}}}}`,
		`patch trainingjobs/status {"metadata":{"uid":"uid-mnist"},"status":{"completionTime":null,"conditions":[],"currentScaler":null,"currentWorkers":null,"phase":"Created",` +
			`"replicaStatuses":{"Launcher":{"active":null,"failed":null,"succeeded":null},"Worker":{"active":null,"failed":null,"succeeded":null}},"targetWorkers":null}}`,
		`patch trainingjobs {"metadata":{"annotations":{"gpu-spot.autoscaling/held-parts":null,"gpu-spot.autoscaling/held-reason":null,"gpu-spot.autoscaling/held-replicas":null,"gpu-spot.autoscaling/held-restarts":null,"gpu-spot.autoscaling/held-since":null,"gpu-spot.autoscaling/stop-requested":null},"labels":{"gpu-spot.autoscaling/held":null},"uid":"uid-mnist"}}`,
		"delete configmaps mnist-config",
	}, w.writes())
	stored := w.object(jobs, "mnist")
	assert.Empty(t, stored.GetLabels())
	conditions, found, _ := unstructured.NestedSlice(stored.Object, "status", "conditions")
	assert.True(t, found && len(conditions) == 0, "the definition asks for the field")
	job := w.get("trainingjob", "mnist")
	assert.False(t, job.Suspended)
	assert.Equal(t, 4, job.Replicas)

	w.writes()
	require.NoError(t, w.registry.Resume(ctx, job, 4))
	assert.Empty(t, w.writes(), "the same again")
}

func TestTrainingJobResumedWithFewerWorkersIsLeftToGrow(t *testing.T) {
	w := newWorld(t, etJob)
	ctx := context.Background()
	jobs := w.registry.byName["trainingjob"].Resource()
	require.NoError(t, w.registry.Suspend(ctx, w.get("trainingjob", "mnist"), ReasonReclaim))
	w.set(jobs, "mnist", "Suspended", "status", "phase")
	require.NoError(t, w.registry.Resume(ctx, w.get("trainingjob", "mnist"), 3))
	job := w.get("trainingjob", "mnist")
	assert.Equal(t, 3, job.Replicas)
	assert.Equal(t, HeldShrunk, job.Object.GetLabels()[api.LabelHeld])
	assert.Equal(t, "4", job.Object.GetAnnotations()[api.AnnotationHeldReplicas])
}

func TestTrainingJobResumedByALeaderThatDied(t *testing.T) {
	for _, reached := range []string{"annotation taken off", "status reset"} {
		w := newWorld(t, etJob)
		ctx := context.Background()
		jobs := w.registry.byName["trainingjob"].Resource()
		require.NoError(t, w.registry.Suspend(ctx, w.get("trainingjob", "mnist"), ReasonReclaim))
		annotations := w.object(jobs, "mnist").GetAnnotations()
		delete(annotations, api.AnnotationSupervisorSuspended)
		rest := map[string]any{}
		for key, value := range annotations {
			rest[key] = value
		}
		w.set(jobs, "mnist", rest, "metadata", "annotations")
		phase := map[string]string{"annotation taken off": "Suspended", "status reset": "Created"}[reached]
		w.set(jobs, "mnist", phase, "status", "phase")

		require.NoError(t, w.registry.Resume(ctx, w.get("trainingjob", "mnist"), 4), reached)
		job := w.get("trainingjob", "mnist")
		assert.False(t, job.Suspended, reached)
		assert.Empty(t, job.Object.GetLabels(), reached)
	}
}

func TestTrainingJobGang(t *testing.T) {
	w := newWorld(t, etJob)
	names, gpus := w.gangOf(w.get("trainingjob", "mnist"), 3)
	assert.Equal(t, []string{"mnist-worker-0 worker", "mnist-worker-1 worker", "mnist-worker-2 worker", "mnist-launcher launcher"}, names)
	assert.EqualValues(t, 3, gpus, "limits count as requests")
}

func TestTrainingJobThatIsMalformedNamesTheField(t *testing.T) {
	for path, change := range map[string]struct{ from, to string }{
		"spec.etReplicaSpecs.worker":                                    {"    worker:\n", "    workers:\n"},
		"spec.etReplicaSpecs.worker.minReplicas":                        {"minReplicas: 2", `minReplicas: "2"`},
		"spec.etReplicaSpecs.worker.maxReplicas":                        {"maxReplicas: 8", "maxReplicas: -1"},
		"status.targetWorkers":                                          {"targetWorkers: [mnist-worker-0", "targetWorkers: [0"},
		"metadata.annotations[job-supervisor.kube-ai.io/max-wait-time]": {`max-wait-time: "600"`, `max-wait-time: "10m"`},
		"metadata.annotations[gpu-spot.autoscaling/recovery]":           {"  annotations:\n", "  annotations:\n    gpu-spot.autoscaling/recovery: partial\n"},
		"metadata.annotations[gpu-spot.autoscaling/min-replicas]":       {"  annotations:\n", "  annotations:\n    gpu-spot.autoscaling/min-replicas: \"9\"\n"},
		"metadata.annotations[gpu-spot.autoscaling/max-wait]":           {"  annotations:\n", "  annotations:\n    gpu-spot.autoscaling/max-wait: 1 day\n"},
	} {
		w := newWorld(t, strings.Replace(etJob, change.from, change.to, 1))
		_, err := w.registry.Get(context.Background(), refOf("trainingjob", "mnist"))
		var field *FieldError
		if assert.True(t, errors.As(err, &field), "%s: %v", path, err) {
			assert.Equal(t, path, field.Path)
		}
	}
}

func TestTrainingJobThatLostAWorkerToTheReleaseIsShortOfIt(t *testing.T) {
	for policy, want := range map[string]int{"Never": 3, "OnFailure": 3, "Always": 4} {
		w := newWorld(t, strings.Replace(etJob, "      restartPolicy: OnFailure", "      restartPolicy: "+policy, 1))
		jobs := w.registry.byName["trainingjob"].Resource()
		w.set(jobs, "mnist", []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2"}, "status", "currentWorkers")
		assert.Equal(t, 4, w.get("trainingjob", "mnist").Replicas, "it is not held: it may have lost one by itself")
		w.set(jobs, "mnist", map[string]any{api.LabelHeld: HeldShrunk}, "metadata", "labels")
		assert.Equal(t, want, w.get("trainingjob", "mnist").Replicas, "policy %s", policy)
		w.set(jobs, "mnist", "Scaling", "status", "phase")
		assert.Equal(t, 4, w.get("trainingjob", "mnist").Replicas, "nobody looks after them while it is scaled")
	}
}

func TestTrainingJobDoesNotRememberWorkersThatWereReplaced(t *testing.T) {
	lost := []any{"mnist-worker-0", "mnist-worker-1", "mnist-worker-2", "mnist-worker-3", "mnist-worker-4"}
	for name, tc := range map[string]struct {
		targets, current []any
		want             string
	}{
		"one was lost and has a replacement": {lost, lost[1:], "4"},
		"one was lost and has none yet":      {lost[:4], lost[1:4], "4"},
		"it was scaled out by its owner":     {lost, lost, "5"},
		"it was scaled in by its owner":      {lost[:3], lost[:3], "3"},
	} {
		for how, hold := range map[string]func(*world, Job) error{
			"shrunk": func(w *world, job Job) error {
				return w.registry.Shrink(context.Background(), job, []string{"mnist-worker-2"})
			},
			"suspended": func(w *world, job Job) error { return w.registry.Suspend(context.Background(), job, ReasonReclaim) },
		} {
			w := newWorld(t, etJob)
			jobs := w.registry.byName["trainingjob"].Resource()
			w.set(jobs, "mnist", tc.targets, "status", "targetWorkers")
			w.set(jobs, "mnist", tc.current, "status", "currentWorkers")
			require.NoError(t, hold(w, w.get("trainingjob", "mnist")))
			assert.Equal(t, tc.want, w.object(jobs, "mnist").GetAnnotations()[api.AnnotationHeldReplicas], "%s, %s", name, how)
		}
	}
}
