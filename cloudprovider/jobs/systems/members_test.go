package systems_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/jobstest"
)

func pod(name, labels, owner string) string {
	text := fmt.Sprintf("kind: Pod\nmetadata:\n  name: %s\n  labels: {%s}\n", name, labels)
	return text + fmt.Sprintf("  ownerReferences: [{%s, uid: u, controller: true}]\n", owner)
}

type member struct {
	name, pod string
	want      jobs.Membership
}

// members are pods as their operators make them.
func members() []member {
	kubeflow := "training.kubeflow.org/operator-name: %s, training.kubeflow.org/job-name: j, training.kubeflow.org/replica-type: %s, training.kubeflow.org/replica-index: \"%d\""
	kubeflowJob := "apiVersion: kubeflow.org/v1, name: j, kind: "
	arenaPyTorch := "group-name: kubeflow.org, controller-name: pytorch-operator, job-name: j, pytorch-job-name: j, pytorch-replica-type: "
	elasticJob := "apiVersion: elastic.iml.github.io/v1alpha1, kind: ElasticJob, name: j"
	volcanoJob := "apiVersion: batch.volcano.sh/v1alpha1, kind: Job, name: resnet"
	lws := "leaderworkerset.sigs.k8s.io/name: j, leaderworkerset.sigs.k8s.io/group-index: \"1\", leaderworkerset.sigs.k8s.io/worker-index: \"%d\""
	statefulSet := "apiVersion: apps/v1, kind: StatefulSet, name: "
	batch := "apiVersion: batch/v1, kind: Job, name: "
	jobset := "jobset.sigs.k8s.io/jobset-name: j, jobset.sigs.k8s.io/replicatedjob-name: %s, jobset.sigs.k8s.io/job-index: \"%d\", " +
		"jobset.sigs.k8s.io/job-global-index: \"%d\", batch.kubernetes.io/job-completion-index: \"%d\", batch.kubernetes.io/job-name: j-x"
	coordinator := jobset + ", jobset.sigs.k8s.io/coordinator: j-node-1-2.j"
	return []member{
		{"rendezvous host of an elastic PyTorchJob", pod("j-worker-0", fmt.Sprintf(kubeflow, "pytorchjob-controller", "worker", 0)+", training.kubeflow.org/job-role: master", kubeflowJob+"PyTorchJob"), jobstest.Member("pytorchjob", "j", jobs.RoleHost)},
		{"worker of a PyTorchJob", pod("j-worker-1", fmt.Sprintf(kubeflow, "pytorchjob-controller", "worker", 1), kubeflowJob+"PyTorchJob"), jobstest.Member("pytorchjob", "j", jobs.RoleWorker)},
		{"master of a PyTorchJob", pod("j-master-0", fmt.Sprintf(kubeflow, "pytorchjob-controller", "master", 0), kubeflowJob+"PyTorchJob"), jobstest.Member("pytorchjob", "j", jobs.RoleHost)},
		{"master of a PyTorchJob of Arena", pod("j-master-0", arenaPyTorch+"master, pytorch-replica-index: \"0\", job-role: master", kubeflowJob+"PyTorchJob"), jobstest.Member("pytorchjob", "j", jobs.RoleHost)},
		{"worker of a PyTorchJob of Arena", pod("j-worker-1", arenaPyTorch+"worker, pytorch-replica-index: \"1\"", kubeflowJob+"PyTorchJob"), jobstest.Member("pytorchjob", "j", jobs.RoleWorker)},
		{"parameter server of a TFJob", pod("j-ps-0", fmt.Sprintf(kubeflow, "tfjob-controller", "ps", 0), kubeflowJob+"TFJob"), jobstest.Member("tfjob", "j", jobs.RoleHost)},
		{"worker of a TFJob with a chief", pod("j-worker-0", fmt.Sprintf(kubeflow, "tfjob-controller", "worker", 0), kubeflowJob+"TFJob"), jobstest.Member("tfjob", "j", jobs.RoleWorker)},
		{"worker of a TFJob that is its chief", pod("j-worker-0", fmt.Sprintf(kubeflow, "tfjob-controller", "worker", 0)+", training.kubeflow.org/job-role: master", kubeflowJob+"TFJob"), jobstest.Member("tfjob", "j", jobs.RoleHost)},
		{"evaluator of a TFJob of Arena", pod("j-evaluator-0", "group-name: kubeflow.org, tf-job-name: j, tf-replica-type: evaluator", kubeflowJob+"TFJob"), jobstest.Member("tfjob", "j", jobs.RoleHost)},
		{"worker of a TFJob of Arena", pod("j-worker-1", "group-name: kubeflow.org, tf-job-name: j, tf-replica-type: worker", kubeflowJob+"TFJob"), jobstest.Member("tfjob", "j", jobs.RoleWorker)},
		{"coordinator of a JAXJob", pod("j-worker-0", fmt.Sprintf(kubeflow, "jaxjob-controller", "worker", 0), kubeflowJob+"JAXJob"), jobstest.Member("jaxjob", "j", jobs.RoleHost)},
		{"worker of a JAXJob", pod("j-worker-1", fmt.Sprintf(kubeflow, "jaxjob-controller", "worker", 1), kubeflowJob+"JAXJob"), jobstest.Member("jaxjob", "j", jobs.RoleWorker)},
		{"pod of an XGBoostJob, which is of no known system", pod("j-worker-0", fmt.Sprintf(kubeflow, "xgboostjob-controller", "worker", 0), kubeflowJob+"XGBoostJob"), jobstest.Member(jobs.SystemPod, "xgboostjob.j", jobs.RoleWorker)},
		{"launcher of a TrainingJob", pod("j-launcher", "group-name: kai.alibabacloud.com, training-job-name: j, training-job-role: launcher", "apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, name: j"), jobstest.Member("trainingjob", "j", jobs.RoleLauncher)},
		{"worker of a TrainingJob", pod("j-worker-0", "group-name: kai.alibabacloud.com, training-job-name: j, training-job-role: worker", "apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, name: j"), jobstest.Member("trainingjob", "j", jobs.RoleWorker)},
		{"launcher of the mpi-operator, which a Job owns", jobstest.MPILauncher, jobstest.Member("mpijob", "tf", jobs.RoleLauncher)},
		{"worker of the mpi-operator", pod("j-worker-1", "training.kubeflow.org/operator-name: mpi-operator, training.kubeflow.org/job-name: j, training.kubeflow.org/job-role: worker", "apiVersion: kubeflow.org/v2beta1, name: j, kind: MPIJob"), jobstest.Member("mpijob", "j", jobs.RoleWorker)},
		{"launcher of the training operator", pod("j-launcher", fmt.Sprintf(kubeflow, "mpijob-controller", "launcher", 0)+", training.kubeflow.org/job-role: master", kubeflowJob+"MPIJob"), jobstest.Member("mpijob-v1", "j", jobs.RoleLauncher)},
		{"worker of the training operator's MPIJob", pod("j-worker-0", fmt.Sprintf(kubeflow, "mpijob-controller", "worker", 0), kubeflowJob+"MPIJob"), jobstest.Member("mpijob-v1", "j", jobs.RoleWorker)},
		{"worker of an MPIJob of Arena", pod("j-worker-1", "group_name: kubeflow.org, mpi_job_name: j, mpi_role_type: worker", statefulSet+"j-worker"), jobstest.Member("mpijob-v1alpha1", "j", jobs.RoleWorker)},
		{"launcher of an MPIJob of Arena", pod("j-launcher-x", "group_name: kubeflow.org, mpi_job_name: j, mpi_role_type: launcher", batch+"j-launcher"), jobstest.Member("mpijob-v1alpha1", "j", jobs.RoleLauncher)},
		{"first pod of a JobSet", pod("j-node-0-0-x", fmt.Sprintf(jobset, "node", 0, 0, 0), batch+"j-node-0"), jobstest.Member("jobset", "j", jobs.RoleHost)},
		{"first pod of the second Job of a JobSet", pod("j-node-1-0-x", fmt.Sprintf(jobset, "node", 1, 1, 0), batch+"j-node-1"), jobstest.Member("jobset", "j", jobs.RoleWorker)},
		{"coordinator of a JobSet", pod("j-node-1-2-x", fmt.Sprintf(coordinator, "node", 1, 1, 2), batch+"j-node-1"), jobstest.Member("jobset", "j", jobs.RoleHost)},
		{"first pod of a JobSet that has a coordinator", pod("j-node-0-0-x", fmt.Sprintf(coordinator, "node", 0, 0, 0), batch+"j-node-0"), jobstest.Member("jobset", "j", jobs.RoleWorker)},
		{"launcher of a JobSet", pod("j-launcher-0-0-x", fmt.Sprintf(jobset, "launcher", 0, 0, 0), batch+"j-launcher-0"), jobstest.Member("jobset", "j", jobs.RoleLauncher)},
		{"pod of a Job", pod("j-x-abcde", "batch.kubernetes.io/job-name: j-x", batch+"j-x"), jobstest.Member("job", "j-x", jobs.RoleWorker)},
		{"pod of another group's Job", pod("j-x-abcde", "a: b", "apiVersion: example.com/v1, kind: Job, name: j-x"), jobstest.Member(jobs.SystemPod, "job.j-x", jobs.RoleWorker)},
		{"master of DLRover", pod("elasticjob-j-dlrover-master-0", "elasticjob.dlrover/name: j, elasticjob.dlrover/replica-type: dlrover-master", elasticJob), jobstest.Member("dlrover", "j", jobs.RoleLauncher)},
		{"worker of DLRover, which does not control it", strings.Replace(pod("j-edljob-worker-0", "app: dlrover, elasticjob.dlrover/name: j, elasticjob.dlrover/replica-type: worker, elasticjob.dlrover/rank-index: \"0\"", elasticJob), ", controller: true", "", 1), jobstest.Member("dlrover", "j", jobs.RoleWorker)},
		{"parameter server of DLRover", pod("j-edljob-ps-0", "elasticjob.dlrover/name: j, elasticjob.dlrover/replica-type: ps", elasticJob), jobstest.Member("dlrover", "j", jobs.RoleHost)},
		{"launcher of an AITrainingJob", pod("my-job-launcher-0", "", "apiVersion: kongming.cce.baiudbce.com/v1, kind: AITrainingJob, name: my-job"), jobstest.Member("aitrainingjob", "my-job", jobs.RoleLauncher)},
		{"trainer of an AITrainingJob", pod("my-job-trainer-0", "", "apiVersion: kongming.cce.baiudbce.com/v1, kind: AITrainingJob, name: my-job"), jobstest.Member("aitrainingjob", "my-job", jobs.RoleWorker)},
		{"head of a RayCluster", pod("rc-head", "ray.io/cluster: rc, ray.io/node-type: head, ray.io/group: headgroup", "apiVersion: ray.io/v1, kind: RayCluster, name: rc"), jobstest.Member("raycluster", "rc", jobs.RoleLauncher)},
		{"worker of a RayCluster", pod("rc-big-worker-x", "ray.io/cluster: rc, ray.io/node-type: worker, ray.io/group: big", "apiVersion: ray.io/v1, kind: RayCluster, name: rc"), jobstest.Member("raycluster", "rc", jobs.RoleWorker)},
		{"submitter of a RayJob", pod("rj-abcde", "ray.io/originated-from-cr-name: rj, ray.io/originated-from-crd: RayJob", batch+"rj"), jobstest.Member("rayjob", "rj", jobs.RoleLauncher)},
		{"leader of a LeaderWorkerSet", pod("j-1", fmt.Sprintf(lws, 0), statefulSet+"j"), jobstest.Member("leaderworkerset", "j", jobs.RoleHost)},
		{"worker of a LeaderWorkerSet", pod("j-1-2", fmt.Sprintf(lws, 2), statefulSet+"j-1"), jobstest.Member("leaderworkerset", "j", jobs.RoleWorker)},
		{"master of a Volcano job", pod("resnet-mpimaster-0", "volcano.sh/job-name: resnet, volcano.sh/task-spec: mpimaster", volcanoJob), jobstest.Member("vcjob", "resnet", jobs.RoleLauncher)},
		{"worker of a Volcano job", pod("resnet-worker-0", "volcano.sh/job-name: resnet, volcano.sh/task-spec: worker", volcanoJob), jobstest.Member("vcjob", "resnet", jobs.RoleWorker)},
	}
}

func TestAPodOfEverySystemIsAmongTheMembers(t *testing.T) {
	known := sets.New[string]()
	for _, test := range members() {
		known.Insert(test.want.System)
	}
	for _, system := range newFixture(t).Config.Systems {
		assert.True(t, known.Has(system.Name()), "add a pod of %s to members, as its operator makes it", system.Name())
	}
}

func TestMembers(t *testing.T) {
	for _, test := range members() {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, newFixture(t).Registry.Member(jobstest.ParsePod(t, test.pod)))
		})
	}
}

// Whoever may make pods could acknowledge the requests of a job, or have it suspended, if that made his pod a part of it.
func TestTheNameAndTheLabelsOfAnotherPodMakeNoPodPartOfItsJob(t *testing.T) {
	for _, test := range members() {
		t.Run(test.name, func(t *testing.T) {
			registry := newFixture(t).Registry
			copied := jobstest.ParsePod(t, test.pod)
			copied.OwnerReferences = nil
			assert.Equal(t, jobstest.Ref(jobs.SystemPod, copied.Name), registry.Member(copied).Ref)
			copied.OwnerReferences = jobstest.ParsePod(t, pod("p", "", "apiVersion: apps/v1, kind: ReplicaSet, name: theirs")).OwnerReferences
			assert.Equal(t, jobstest.Ref(jobs.SystemPod, "replicaset.theirs"), registry.Member(copied).Ref)
			copied.OwnerReferences = jobstest.ParsePod(t, pod("p", "", "apiVersion: batch/v1, kind: Job, name: theirs")).OwnerReferences
			assert.Equal(t, jobstest.Ref("job", "theirs"), registry.Member(copied).Ref)
			copied.OwnerReferences = jobstest.ParsePod(t, pod("p", "", "apiVersion: apps/v1, kind: StatefulSet, name: theirs")).OwnerReferences
			assert.Equal(t, jobstest.Ref(jobs.SystemPod, "statefulset.theirs"), registry.Member(copied).Ref)
			_, starts := jobs.NewStarts(registry).JobOf(copied)
			assert.False(t, starts, "nor of its gang")
		})
	}
}

func TestTheRoleThatIsAskedForGoesBeforeTheSystems(t *testing.T) {
	jobstest.CheckMembers(newFixture(t), map[string]jobs.Membership{"train-0-x": jobstest.Member("job", "train", jobs.RoleLauncher)}, `
kind: Pod
metadata:
  name: train-0-x
  annotations: {gpu-spot.autoscaling/role: launcher}
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]`)
}

func TestWhatIsPartOfAJob(t *testing.T) {
	owned := func(owner string) string {
		return `{kind: Pod, metadata: {name: p, ownerReferences: [{` + owner + `, uid: u, controller: true}]}}`
	}
	mpi := func(role string) string {
		return pod("p", "training.kubeflow.org/operator-name: mpijob-controller, training.kubeflow.org/job-name: m, training.kubeflow.org/replica-type: "+role,
			"apiVersion: kubeflow.org/v1, kind: MPIJob, name: m")
	}
	registry := newFixture(t).Registry
	for name, test := range map[string]struct {
		pod        string
		job, vital bool
	}{
		"a pod of a batch Job":                {owned("apiVersion: batch/v1, kind: Job, name: train"), true, false},
		"a worker of a job system":            {mpi("worker"), true, false},
		"the launcher of a job system":        {mpi("launcher"), true, true},
		"one that its annotation makes a job": {`{kind: Pod, metadata: {name: p, annotations: {gpu-spot.autoscaling/job: train}}}`, true, false},
		"a server":                            {owned("apiVersion: apps/v1, kind: ReplicaSet, name: web"), false, false},
		"a server with a role":                {`{kind: Pod, metadata: {name: p, annotations: {gpu-spot.autoscaling/role: host}}}`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			job, vital := registry.PartOf(jobstest.ParsePod(t, test.pod))
			assert.Equal(t, test.job, job)
			assert.Equal(t, test.vital, vital)
		})
	}
}

func TestWhichPodsOfAJobLoseTheirWorkTogether(t *testing.T) {
	owned := func(kind, name, more string) string {
		return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: one
  ownerReferences: [{apiVersion: %s, kind: %s, name: sweep, uid: u, controller: true}]
  %s
`, kind, name, more)
	}
	const all, itself = "", "one"
	for name, tc := range map[string]struct{ pod, want string }{
		"of a Job":                      {owned("batch/v1", "Job", ""), itself},
		"of an Indexed Job":             {owned("batch/v1", "Job", `annotations: {batch.kubernetes.io/job-completion-index: "1"}`), all},
		"of a ReplicaSet":               {owned("apps/v1", "ReplicaSet", ""), itself},
		"of a StatefulSet":              {owned("apps/v1", "StatefulSet", ""), all},
		"of an unknown system":          {owned("example.com/v1", "Training", ""), all},
		"that say they are one":         {owned("batch/v1", "Job", "annotations: {gpu-spot.autoscaling/job: search}"), all},
		"of a TrainingJob":              {owned("kai.alibabacloud.com/v1alpha1", "TrainingJob", "labels: {group-name: kai.alibabacloud.com, training-job-name: sweep}"), all},
		"of a JobSet, which makes Jobs": {strings.Replace(owned("batch/v1", "Job", "labels: {jobset.sigs.k8s.io/jobset-name: sweep, jobset.sigs.k8s.io/replicatedjob-name: x, jobset.sigs.k8s.io/job-index: \"0\"}"), "name: sweep,", "name: sweep-x-0,", 1), all},
		"of a LeaderWorkerSet":          {owned("apps/v1", "StatefulSet", `labels: {leaderworkerset.sigs.k8s.io/name: sweep, leaderworkerset.sigs.k8s.io/group-index: "3"}`), "sweep-3"},
		"of nobody":                     {"{apiVersion: v1, kind: Pod, metadata: {name: one}}", all},
	} {
		assert.Equal(t, tc.want, newFixture(t).Registry.UnitOf(jobstest.ParsePod(t, tc.pod)), name)
	}
}
