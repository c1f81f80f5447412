package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

var batchJobs = batchv1.SchemeGroupVersion.WithResource("jobs")

// TestJobs lives through reclaims with one job of each system, under its real operator or a stand-in. Each system is
// installed while the autoscaler runs. Where Kubernetes has PodGroups, they are switched on: it makes them for Jobs of these systems, too.
func TestJobs(t *testing.T) {
	parts := []struct {
		system string
		run    func(*jobSuite)
	}{
		{"et", etJobShrinksAndGrowsAndIsSuspended},
		{"mpi", mpiWorkerComesAgain},
		{"mpi-leads", mpiLauncherThatTrainsCountsToTheMinimum},
		{"mpi-grows", mpiJobGrowsAndIsLeftAloneWhenItIsMadeSmaller},
		{"et-grows", trainingJobGrowsOnNodesThatAreThere},
		{"jobset", jobSetIsSuspendedBeforeItsRanksExit},
		{"trainjob", trainJobIsSuspendedForItsJobSet},
		{"torch", torchTrainJobIsSuspended},
		{"deepspeed", mpiTrainJobLosesItsLauncherAndANode},
		{"indexed", indexedJobIsSuspended},
		{"single", singleJobMoves},
		{"dlrover", dlroverLaunchesTheRankAnew},
		{"aitj", aiTrainingJobGoesOn},
		{"aitj-ends", aiTrainingJobThatALostPodEndsIsAskedForACheckpoint},
		{"ray", rayClusterLosesWorkersThenItsHead},
		{"rayowned", rayClusterOfAnotherLosesItsHeadLast},
		{"rayjob", rayJobIsSuspended},
		{"volcano", volcanoJobIsAbortedAndResumed},
		{"volcano-ends", volcanoJobThatALostPodEndsIsAbortedAndResumed},
		{"lws", groupOfALeaderWorkerSetIsMadeAnew},
		{"annotated", annotatedPodsGoInOrder},
		{"broken", brokenJobIsDrainedLikeAnyPod},
		{"unknown", jobOfASystemThatIsNotInstalledIsDrainedLikeAnyPod},
	}
	var pools []string
	for _, part := range parts {
		pools = append(pools, part.system)
	}
	s := startJobSuiteWith(t, rig.Options{World: newWorld(), Workloads: hasPodGroups()}, pools...)
	s.runLeader()
	awaitInstalledSystems(s)
	t.Run("parts", func(t *testing.T) {
		for _, part := range parts {
			t.Run(part.system, func(t *testing.T) { part.run(s.subtest(t)) })
		}
	})
	requireNothingLeft(s)
	requireNeverRequested(s, "pytorchjobs")
	checkSystemsComeAndGo(s)
}

// requireNothingLeft waits until no Node is marked and no job is held, which is after the reclaiming instances are released.
func requireNothingLeft(s *jobSuite) {
	s.t.Helper()
	s.eventually("no Node is marked", func(ctx context.Context) (bool, error) {
		nodes, err := s.nodes(ctx)
		for i := range nodes {
			if marked(&nodes[i]) || nodes[i].Spec.Unschedulable {
				return false, err
			}
		}
		return err == nil, err
	})
	for _, of := range []schema.GroupVersionResource{
		standin.TrainingJobs, operators.MPIJobs, operators.JobSets, batchJobs, standin.ElasticJobs, standin.AITrainingJobs,
		operators.RayClusters, operators.RayJobs, standin.VolcanoJobs,
	} {
		held, err := s.objects.Resource(of).List(s.t.Context(), metav1.ListOptions{LabelSelector: labelHeld})
		if err == nil { // else the resource is not installed: a run of some subtests installs only some
			assert.Empty(s.t, held.Items, of.Resource)
		}
	}
}

// requireNeverRequested fails if the autoscaler asked the API server for a resource that is not installed.
func requireNeverRequested(s *jobSuite, resource string) {
	s.t.Helper()
	metrics, err := s.Client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(s.t.Context())
	require.NoError(s.t, err)
	asked := func(resource string) bool {
		for line := range strings.Lines(string(metrics)) {
			if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="`+resource+`"`) {
				return true
			}
		}
		return false
	}
	require.True(s.t, asked("pods"), "it is counted who asks")
	assert.False(s.t, asked(resource))
}

// checkSystemsComeAndGo checks that the job systems that were installed while the autoscaler ran are on, and that one that is
// uninstalled is switched off.
func checkSystemsComeAndGo(s *jobSuite) {
	s.t.Helper()
	var on []string
	for operator := range s.operators.running {
		on = append(on, systemsOfOperator[operator]...)
	}
	awaitInstalledSystems(s, on...)
	if !s.operators.running["aitraining-operator"] {
		return
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	name := standin.AITrainingJobs.GroupResource().String()
	require.NoError(s.t, s.objects.Resource(definitions).Delete(s.t.Context(), name, metav1.DeleteOptions{}))
	awaitInstalledSystems(s, slices.DeleteFunc(on, func(system string) bool { return system == "aitrainingjob" })...)
}

const etWorkers = "training-job-name=et,training-job-role=worker"

func etJobShrinksAndGrowsAndIsSuspended(s *jobSuite) {
	s.runOperator(standin.NewETOperator)
	s.submit(etJob(gpuTemplate("et")))
	workers := s.awaitRunningPods(etWorkers, 8)
	launcher := s.awaitRunningPods("training-job-name=et,training-job-role=launcher", 1)[0]
	s.awaitField(standin.TrainingJobs, "et", "status.phase", "Running")

	checkETShrinksAndGrows(s, workers[:2], launcher)
	checkETIsSuspendedAndResumed(s)
	assert.EqualValues(s.t, 0, s.field(standin.TrainingJobs, "et", "status.restartCount"))
	s.requireBought("et", 8+2+7)
}

// checkETShrinksAndGrows reclaims so few workers that enough are left.
func checkETShrinksAndGrows(s *jobSuite, lost []corev1.Pod, launcher corev1.Pod) {
	s.t.Helper()
	reclaiming := s.reclaimNodesOf(lost...)
	s.awaitJobEvent("TrainingJob", "et", "SpotJobWarned", 1)
	s.awaitJobEvent("TrainingJob", "et", "SpotJobShrunk", 1)
	s.awaitGone(reclaiming)
	scaleIns := scalersOf(s, standin.ScaleIns, "et", false)
	require.Len(s.t, scaleIns, 1)
	awaitScaleInOf(s, scaleIns[0].GetName(), lost[0].Name, lost[1].Name)

	s.awaitNotHeld(standin.TrainingJobs, "et")
	now := s.awaitRunningPods(etWorkers, 8)
	s.requireOtherNodes(reclaiming, now)
	s.awaitJobEvent("TrainingJob", "et", "SpotJobGrown", 1)
	scaleOuts := scalersOf(s, standin.ScaleOuts, "et", false)
	require.Len(s.t, scaleOuts, 1)
	for _, scaler := range append(scaleIns, scaleOuts...) {
		assert.True(s.t, hasCondition(scaler, "Scaling"), "%s has a time-out", scaler.GetName())
	}
	assert.Equal(s.t, launcher.UID, s.awaitRunningPods("training-job-name=et,training-job-role=launcher", 1)[0].UID, "it trained on")
	s.awaitField(standin.TrainingJobs, "et", "status.phase", "Running")
	awaitHosts(s, 8)
}

// checkETIsSuspendedAndResumed reclaims so many workers that too few are left.
func checkETIsSuspendedAndResumed(s *jobSuite) {
	s.t.Helper()
	workers := s.awaitRunningPods(etWorkers, 8)
	reclaiming := s.reclaimNodesOf(workers[:7]...)
	s.awaitJobEvent("TrainingJob", "et", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("TrainingJob", "et", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods(etWorkers, 8))
	s.awaitNotHeld(standin.TrainingJobs, "et")
	s.awaitField(standin.TrainingJobs, "et", "status.phase", "Running")
	job, err := s.getObject(s.t.Context(), standin.TrainingJobs, "et")
	require.NoError(s.t, err)
	assert.NotContains(s.t, job.GetAnnotations(), "job-supervisor.kube-ai.io/job-suspended")
	awaitHosts(s, 8)
}

// awaitHosts waits until the launcher knows of n workers.
func awaitHosts(s *jobSuite, n int) {
	s.t.Helper()
	s.eventually(fmt.Sprintf("the launcher knows %d hosts that are there", n), func(ctx context.Context) (bool, error) {
		launcher, err := s.pod(ctx, "et-launcher")
		if launcher == nil || err != nil {
			return false, err
		}
		hosts := strings.Fields(launcher.Annotations[standin.AnnotationHostfile])
		for _, host := range hosts {
			if worker, err := s.pod(ctx, host); worker == nil || err != nil {
				return false, err
			}
		}
		return len(hosts) == n, nil
	})
}

func mpiWorkerComesAgain(s *jobSuite) {
	s.runRealOperator(operators.MPIOperator)
	s.submit(mpiJobV2(gpuTemplate("mpi")))
	const workersOf, launcherOf = "training.kubeflow.org/job-name=mpi,training.kubeflow.org/job-role=worker", "training.kubeflow.org/job-name=mpi,training.kubeflow.org/job-role=launcher"
	workers := s.awaitRunningPods(workersOf, 2)
	launcher := s.awaitRunningPods(launcherOf, 1)[0]
	reclaiming := s.reclaimNodesOf(workers[1])
	s.awaitJobEvent("MPIJob", "mpi", "SpotJobWarned", 1)
	s.awaitGone(reclaiming)
	now := s.awaitRunningPods(workersOf, 2)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(s.t, workers[0].UID, now[0].UID)
	assert.Equal(s.t, workers[1].Name, now[1].Name, "it has its name again")
	s.eventually("the launcher was touched, so that it sees its hosts", func(ctx context.Context) (bool, error) {
		pod, err := s.pod(ctx, launcher.Name)
		return pod != nil && pod.Annotations["gpu-spot.autoscaling/hosts-refreshed"] != "" && pod.UID == launcher.UID, err
	})
	s.awaitNotHeld(operators.MPIJobs, "mpi")
	assert.Nil(s.t, s.field(operators.MPIJobs, "mpi", "status.replicaStatuses.Worker.failed"))
	assert.Nil(s.t, s.field(batchJobs, "mpi-launcher", "status.failed"))
	s.requireBought("mpi", 2+1)
}

func mpiLauncherThatTrainsCountsToTheMinimum(s *jobSuite) {
	s.runRealOperator(operators.MPIOperator)
	s.submit(leadingMPIJob(gpuTemplate("mpi-leads")))
	const of = "training.kubeflow.org/job-name=mpi-leads,training.kubeflow.org/job-role="
	workers := s.awaitRunningPods(of+"worker", 2)
	launcher := s.awaitRunningPods(of+"launcher", 1)[0]
	reclaiming := s.reclaimNodesOf(workers[1])
	s.awaitGone(reclaiming)
	now := s.awaitRunningPods(of+"worker", 2)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(s.t, workers[0].UID, now[0].UID, "it went on with the launcher")
	assert.Equal(s.t, launcher.UID, s.awaitRunningPods(of+"launcher", 1)[0].UID)

	reclaiming = s.reclaimNodesOf(launcher)
	s.awaitJobEvent("MPIJob", "mpi-leads", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.requireOtherNodes(reclaiming, append(s.awaitRunningPods(of+"worker", 2), s.awaitRunningPods(of+"launcher", 1)...))
	s.awaitNotHeld(operators.MPIJobs, "mpi-leads")
	assert.Nil(s.t, s.field(batchJobs, "mpi-leads-launcher", "status.failed"))
	s.requireBought("mpi-leads", 3+1+1)
}

func jobSetIsSuspendedBeforeItsRanksExit(s *jobSuite) {
	s.runRealOperator(operators.JobSet)
	s.submit(rigidJobSet(gpuTemplate("jobset")))
	const pods = operators.LabelJobSet + "=set"
	reclaiming := s.reclaimNodesOf(s.awaitRunningPods(pods, 2)[0])
	s.awaitJobEvent("JobSet", "set", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("JobSet", "set", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods(pods, 2))
	s.awaitNotHeld(operators.JobSets, "set")
	assert.Equal(s.t, false, s.field(operators.JobSets, "set", "spec.suspend"))
	assert.EqualValues(s.t, 0, s.field(operators.JobSets, "set", "status.restarts"))
	assert.Nil(s.t, s.field(operators.JobSets, "set", "status.terminalState"))
	for i := range 2 {
		assert.Nil(s.t, s.field(batchJobs, fmt.Sprintf("set-node-%d", i), "status.failed"))
	}
	s.requireBought("jobset", 2+1)
}

func trainJobIsSuspendedForItsJobSet(s *jobSuite) {
	s.runRealOperator(operators.JobSet)
	s.runRealOperator(operators.Trainer)
	s.submit(trainJob(gpuTemplate("trainjob")))
	checkTrainJobIsSuspended(s, "trainjob", s.awaitRunningPods(operators.LabelJobSet+"=trainjob", 2), 0)
	requireNoFailedPod(s, "trainjob-node-0")
	s.requireBought("trainjob", 2+1)
}

func torchTrainJobIsSuspended(s *jobSuite) {
	s.runTrainer(operators.TorchDistributed)
	s.submit(torchTrainJob("torch", ""))
	checkTrainJobIsSuspended(s, "torch", s.awaitRunningPods(operators.LabelJobSet+"=torch", 2), 0)
	requireNoFailedPod(s, "torch-node-0")
	s.requireBought("torch", 2+1)
}

// mpiTrainJobLosesItsLauncherAndANode is about a job whose launcher trains, and ends it.
func mpiTrainJobLosesItsLauncherAndANode(s *jobSuite) {
	s.runTrainer(operators.DeepSpeedDistributed)
	s.submit(mpiTrainJob("deepspeed", ""))
	const pods = operators.LabelJobSet + "=deepspeed"
	checkTrainJobIsSuspended(s, "deepspeed", s.awaitRunningPods(pods, 3), 0, 2) // launcher, nodes
	requireNoFailedPod(s, "deepspeed-launcher-0", "deepspeed-node-0")
	s.requireBought("deepspeed", 3+2)
	finishPods(s, s.awaitRunningPods(pods, 3)[0])
	s.eventually("the job is complete", func(ctx context.Context) (bool, error) {
		conditions, err := trueConditions(ctx, s, operators.TrainJobs, "deepspeed")
		return slices.Contains(conditions, "Complete"), err
	})
}

// runTrainer runs the Trainer with the runtime, as it is shipped.
func (s *jobSuite) runTrainer(runtime operators.Sample) {
	s.t.Helper()
	s.runRealOperator(operators.JobSet)
	s.runRealOperator(operators.Trainer)
	manifest, err := runtime.Read(s.t.Context())
	require.NoError(s.t, err)
	s.submit(string(manifest))
}

// checkTrainJobIsSuspended reclaims the Nodes of those of the job's pods. It is suspended and comes back whole, and nothing is counted.
func checkTrainJobIsSuspended(s *jobSuite, name string, pods []corev1.Pod, lost ...int) {
	s.t.Helper()
	var losing []corev1.Pod
	for _, i := range lost {
		losing = append(losing, pods[i])
	}
	reclaiming := s.reclaimNodesOf(losing...)
	s.awaitJobEvent("JobSet", name, "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("JobSet", name, "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods(operators.LabelJobSet+"="+name, len(pods)))
	s.awaitNotHeld(operators.JobSets, name)
	assert.Equal(s.t, false, s.field(operators.TrainJobs, name, "spec.suspend"))
	assert.EqualValues(s.t, 0, s.field(operators.JobSets, name, "status.restarts"))
	conditions, err := trueConditions(s.t.Context(), s, operators.TrainJobs, name)
	require.NoError(s.t, err)
	assert.NotContains(s.t, conditions, "Failed")
}

// requireNoFailedPod fails if one of the Jobs has counted a failed pod.
func requireNoFailedPod(s *jobSuite, jobs ...string) {
	s.t.Helper()
	for _, job := range jobs {
		assert.Nil(s.t, s.field(batchJobs, job, "status.failed"), job)
	}
}

func indexedJobIsSuspended(s *jobSuite) {
	s.submit(rigidJob(gpuTemplate("indexed")))
	reclaiming := s.reclaimNodesOf(s.awaitRunningPods("job-name=indexed", 3)[0])
	s.awaitJobEvent("Job", "indexed", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("Job", "indexed", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=indexed", 3))
	s.awaitNotHeld(batchJobs, "indexed")
	assert.Equal(s.t, false, s.field(batchJobs, "indexed", "spec.suspend"))
	assert.Nil(s.t, s.field(batchJobs, "indexed", "status.failed"))
	s.requireBought("indexed", 3+1)
}

func singleJobMoves(s *jobSuite) {
	s.submit(`
apiVersion: batch/v1
kind: Job
metadata: {name: single}
spec:
  backoffLimit: 0
  podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}
  template: ` + gpuTemplate("single") + `
`)
	reclaiming := s.reclaimNodesOf(s.awaitRunningPods("job-name=single", 1)...)
	s.awaitJobEvent("Job", "single", "SpotJobWarned", 1)
	s.awaitGone(reclaiming)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job-name=single", 1))
	s.awaitNotHeld(batchJobs, "single")
	assert.Nil(s.t, s.field(batchJobs, "single", "status.failed"))
	s.requireBought("single", 1+1)
}

func dlroverLaunchesTheRankAnew(s *jobSuite) {
	s.runOperator(standin.NewDLRover)
	s.submit(dlroverJob(gpuTemplate("dlrover")))
	const workersOf = standin.LabelElasticJob + "=dl,elasticjob.dlrover/replica-type=worker"
	workers := s.awaitRunningPods(workersOf, 2)
	order := s.watchTerminations(workersOf)
	reclaiming := s.reclaimNodesOf(workers[1])
	s.awaitJobEvent("ElasticJob", "dl", "SpotJobWarned", 1)
	s.awaitGone(reclaiming)
	now := s.awaitRunningPods(workersOf, 2)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(s.t, workers[0].UID, now[0].UID)
	assert.Equal(s.t, workers[1].Labels["elasticjob.dlrover/rank-index"], now[1].Labels["elasticjob.dlrover/rank-index"])
	assert.Equal(s.t, "1", now[1].Labels[standin.LabelRelaunchCount])
	order.requireGracePeriod(s.t, workers[1])
	s.awaitNotHeld(standin.ElasticJobs, "dl")
	s.awaitField(standin.ElasticJobs, "dl", "status.phase", "Running")
	s.requireBought("dlrover", 2+1)
}

func aiTrainingJobGoesOn(s *jobSuite) {
	s.runOperator(standin.NewAITrainingOperator)
	s.submit(aiTrainingJob(gpuTemplate("aitj")))
	const pods = standin.LabelAITrainingJob + "=aitj"
	before := s.awaitRunningPods(pods, 2)
	reclaiming := s.reclaimNodesOf(before[1])
	s.awaitJobEvent("AITrainingJob", "aitj", "SpotJobWarned", 1)
	s.awaitGone(reclaiming)
	now := s.awaitRunningPods(pods, 2)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(s.t, before[0].UID, now[0].UID)
	assert.Equal(s.t, before[1].Name, now[1].Name)
	s.awaitField(standin.AITrainingJobs, "aitj", "status.phase", "Running")
	assert.EqualValues(s.t, 1, s.field(standin.AITrainingJobs, "aitj", "status.RestartCount.trainer"), "the pod was ended by SIGTERM")
	s.requireBought("aitj", 2+1)
}

func aiTrainingJobThatALostPodEndsIsAskedForACheckpoint(s *jobSuite) {
	s.runOperator(standin.NewAITrainingOperator)
	s.submit(aiTrainingJobWith("aitj-ends", "129", gpuTemplate("aitj-ends", awaited)))
	const pods = standin.LabelAITrainingJob + "=aitj-ends"
	before := s.awaitRunningPods(pods, 2)
	reclaiming := s.reclaimNodesOf(before[1])
	awaitRequestOnAll(s, pods, 2)
	requirePodsStay(s, before[1])
	s.awaitField(standin.AITrainingJobs, "aitj-ends", "status.phase", "Running")
	acknowledgeWhenAsked(s, before[0])
	s.awaitGone(reclaiming)
	s.awaitField(standin.AITrainingJobs, "aitj-ends", "status.phase", "Failed")
	s.awaitNotHeld(standin.AITrainingJobs, "aitj-ends")
}

func rayClusterLosesWorkersThenItsHead(s *jobSuite) {
	s.runRealOperator(operators.KubeRay)
	s.submit(rayCluster("ray", ""))
	const workersOf, headOf = "ray.io/cluster=ray,ray.io/node-type=worker", "ray.io/cluster=ray,ray.io/node-type=head"
	workers := s.awaitRunningPods(workersOf, 2)
	head := s.awaitRunningPods(headOf, 1)[0]
	reclaiming := s.reclaimNodesOf(workers[0])
	s.awaitJobEvent("RayCluster", "ray", "SpotJobWarned", 1)
	s.awaitGone(reclaiming)
	workers = s.awaitRunningPods(workersOf, 2)
	s.requireOtherNodes(reclaiming, workers)
	assert.Equal(s.t, head.UID, s.awaitRunningPods(headOf, 1)[0].UID, "to lose a worker is nothing to the others")

	reclaiming = s.reclaimNodesOf(head, workers[0])
	s.awaitJobEvent("RayCluster", "ray", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("RayCluster", "ray", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, append(s.awaitRunningPods(workersOf, 2), s.awaitRunningPods(headOf, 1)...))
	s.awaitNotHeld(operators.RayClusters, "ray")
	s.awaitField(operators.RayClusters, "ray", "status.state", "ready")
	s.requireBought("ray", 3+1+2)
}

// rayClusterOfAnotherLosesItsHeadLast is about one that is not ours to suspend: it is a RayService's, say.
func rayClusterOfAnotherLosesItsHeadLast(s *jobSuite) {
	s.runRealOperator(operators.KubeRay)
	owner, err := s.Client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(s.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "service"}}, metav1.CreateOptions{})
	require.NoError(s.t, err)
	s.submit(rayCluster("rayowned", fmt.Sprintf(", ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: service, uid: %s, controller: true}]", owner.UID)))
	const workersOf, headOf = "ray.io/cluster=rayowned,ray.io/node-type=worker", "ray.io/cluster=rayowned,ray.io/node-type=head"
	workers := s.awaitRunningPods(workersOf, 2)
	head := s.awaitRunningPods(headOf, 1)[0]
	order := s.watchTerminations("ray.io/cluster=rayowned")
	reclaiming := s.reclaimNodesOf(head, workers[0])
	s.awaitGone(reclaiming)
	order.requireOrder(s.t, workers[0], head)
	s.requireOtherNodes(reclaiming, append(s.awaitRunningPods(workersOf, 2), s.awaitRunningPods(headOf, 1)...))
	assert.Nil(s.t, s.field(operators.RayClusters, "rayowned", "spec.suspend"))
	s.requireBought("rayowned", 3+2)
}

func rayJobIsSuspended(s *jobSuite) {
	s.runRealOperator(operators.KubeRay)
	s.submit(rayJob(gpuTemplate("rayjob", "metadata: {labels: {job: rayjob}}")))
	requireRayJobComesBack(s)
	s.requireBought("rayjob", 2+1)
}

// requireRayJobComesBack reclaims a node of the submitted rayJob, which is to be suspended and resumed without a failure counted.
func requireRayJobComesBack(s *jobSuite) {
	s.t.Helper()
	workers := s.awaitRunningPods("job=rayjob", 2)
	s.awaitField(operators.RayJobs, "rayjob", "status.jobDeploymentStatus", "Running")
	reclaiming := s.reclaimNodesOf(workers[0])
	s.awaitJobEvent("RayJob", "rayjob", "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("RayJob", "rayjob", "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("job=rayjob", 2))
	s.awaitNotHeld(operators.RayJobs, "rayjob")
	s.awaitField(operators.RayJobs, "rayjob", "status.jobDeploymentStatus", "Running")
	assert.EqualValues(s.t, 0, s.field(operators.RayJobs, "rayjob", "status.failed"))
}

func volcanoJobIsAbortedAndResumed(s *jobSuite) {
	s.runOperator(standin.NewVolcano)
	s.submit(volcanoJob(gpuTemplate("volcano")))
	checkVolcanoJobIsAbortedAndResumed(s, "vc")
	s.requireBought("volcano", 2+1)
}

func volcanoJobThatALostPodEndsIsAbortedAndResumed(s *jobSuite) {
	s.runOperator(standin.NewVolcano)
	s.submit(terminatedVolcanoJob(gpuTemplate("volcano-ends")))
	checkVolcanoJobIsAbortedAndResumed(s, "vc-ends")
	s.requireBought("volcano-ends", 2+1)
}

// checkVolcanoJobIsAbortedAndResumed reclaims one of its two workers.
func checkVolcanoJobIsAbortedAndResumed(s *jobSuite, name string) {
	s.t.Helper()
	pods := standin.LabelVolcanoJob + "=" + name
	reclaiming := s.reclaimNodesOf(s.awaitRunningPods(pods, 2)[0])
	s.awaitJobEvent("Job", name, "SpotJobSuspended", 1)
	s.awaitGone(reclaiming)
	s.awaitJobEvent("Job", name, "SpotJobResumed", 1)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods(pods, 2))
	s.awaitNotHeld(standin.VolcanoJobs, name)
	s.awaitField(standin.VolcanoJobs, name, "status.state.phase", "Running")
	retries, _ := s.field(standin.VolcanoJobs, name, "status.retryCount").(int64)
	assert.LessOrEqual(s.t, retries, int64(1), "to be resumed is a retry for Volcano; the lost pod is none")
}

func groupOfALeaderWorkerSetIsMadeAnew(s *jobSuite) {
	s.runRealOperator(operators.LeaderWorkerSet)
	s.submit(leaderWorkerSet(gpuTemplate("lws", awaited)))
	const pods = operators.LabelLeaderWorkerSet + "=lws"
	before := s.awaitRunningPods(pods, 4) // lws-0, lws-0-1, lws-1, lws-1-1
	reclaiming := s.reclaimNodesOf(before[1])
	s.awaitJobEvent("LeaderWorkerSet", "lws", "SpotJobWarned", 1)
	awaitRequestOnAll(s, pods+",leaderworkerset.sigs.k8s.io/group-index=0", 2)
	requirePodsStay(s, before[1])
	for _, other := range before[2:] {
		pod, err := s.pod(s.t.Context(), other.Name)
		require.NoError(s.t, err)
		assert.Empty(s.t, pod.Annotations["gpu-spot.autoscaling/checkpoint-request"], "its group loses nothing")
	}
	acknowledgeWhenAsked(s, before[0])                                          // the leader speaks for its group
	s.awaitGone(reclaimedPods{pods: before[:2], deadline: reclaiming.deadline}) // the operator deletes the leader
	now := s.awaitRunningPods(pods, 4)
	s.requireOtherNodes(reclaiming, now)
	assert.Equal(s.t, names(before), names(now))
	assert.Equal(s.t, uids(before[2:]), uids(now[2:]), "the other group goes on")
	s.requireBought("lws", 4+1)
}

func annotatedPodsGoInOrder(s *jobSuite) {
	for _, name := range []string{"launcher", "host", "worker"} {
		pod := rig.GPUPod("annotated-"+name, 1)
		pod.Labels = map[string]string{"job": "annotated"}
		pod.Annotations = map[string]string{"gpu-spot.autoscaling/job": "annotated", "gpu-spot.autoscaling/role": name}
		pod.Spec.NodeSelector = map[string]string{"pool": "annotated"}
		pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](3)
		s.Submit(s.t, pod)
	}
	pods := s.awaitRunningPods("job=annotated", 3) // host, launcher, worker
	order := s.watchTerminations("job=annotated")
	reclaiming := s.reclaimNodesOf(pods...)
	s.awaitGone(reclaiming)
	order.requireOrder(s.t, pods[2], pods[0], pods[1])
}

func brokenJobIsDrainedLikeAnyPod(s *jobSuite) {
	s.runOperator(standin.NewDLRover)
	s.submit(`
apiVersion: elastic.iml.github.io/v1alpha1
kind: ElasticJob
metadata: {name: broken}
spec: {replicaSpecs: {}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: broken}
spec:
  replicas: 1
  selector: {matchLabels: {app: broken}}
  template: ` + strings.Replace(gpuTemplate("broken", "metadata: {labels: {app: broken}}"), "restartPolicy: Never", "restartPolicy: Always", 1) + `
`)
	job, err := s.getObject(s.t.Context(), standin.ElasticJobs, "broken")
	require.NoError(s.t, err)
	pods := s.awaitRunningPods("app=broken", 1)
	owner := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"elastic.iml.github.io/v1alpha1","kind":"ElasticJob","name":"broken","uid":%q}]}}`, job.GetUID())
	_, err = s.Client.CoreV1().Pods(metav1.NamespaceDefault).Patch(s.t.Context(), pods[0].Name, types.StrategicMergePatchType, []byte(owner), metav1.PatchOptions{})
	require.NoError(s.t, err)

	reclaiming := s.reclaimNodesOf(pods...)
	s.awaitGone(reclaiming)
	s.requireOtherNodes(reclaiming, s.awaitRunningPods("app=broken", 1))
	s.requireBought("broken", 1+1)
}

// jobOfASystemThatIsNotInstalledIsDrainedLikeAnyPod is about a pod that nobody makes again: no operator is there.
func jobOfASystemThatIsNotInstalledIsDrainedLikeAnyPod(s *jobSuite) {
	pod := rig.GPUPod("unknown-worker-0", 1)
	pod.Labels = map[string]string{"app": "unknown"}
	pod.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: "kubeflow.org/v1", Kind: "PyTorchJob", Name: "unknown", UID: "11111111-2222-3333-4444-555555555555", Controller: ptr.To(true),
	}}
	pod.Spec.NodeSelector = map[string]string{"pool": "unknown"}
	s.Submit(s.t, pod)
	s.awaitGone(s.reclaimNodesOf(s.awaitRunningPods("app=unknown", 1)...))
}
