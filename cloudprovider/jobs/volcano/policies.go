package volcano

import (
	"slices"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// policy says what Volcano does with the job on an event.
type policy struct {
	Action   string      `json:"action"`
	Event    string      `json:"event"`
	Events   []string    `json:"events"`
	ExitCode *jobs.Count `json:"exitCode"`
}

// loss is what Volcano sees of a pod that is evicted.
type loss struct {
	event    string
	exitCode int
}

// losses are all that it may see: that the pod is gone, and before that, that it has failed, by SIGTERM or by SIGKILL. The kubelet says
// so of a pod that it ends.
// Source: updatePod and deletePod in pkg/controllers/job/job_controller_handler.go of volcano-sh/volcano at ed72c7c; the phase of a pod
// that ends: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-phase.
var losses = []loss{{event: "PodEvicted"}, {"PodFailed", 128 + 15}, {"PodFailed", 128 + 9}}

func (p policy) concerns(loss loss) bool {
	is := func(event string) bool { return event == "*" || event == loss.event }
	return is(p.Event) || slices.ContainsFunc(p.Events, is) || loss.exitCode != 0 && p.ExitCode.Or(0) == loss.exitCode
}

// reactions returns what Volcano may do if a pod of the task is evicted. The first policy that concerns the event decides, those of the
// task before those of the job. Without one, Volcano makes the pod again.
// Source: applyPolicies in pkg/controllers/job/job_controller_util.go of volcano-sh/volcano at ed72c7c.
func (t *task) reactions(ofJob []policy) []string {
	policies, actions := slices.Concat(t.Policies, ofJob), []string(nil)
	for _, loss := range losses {
		if i := slices.IndexFunc(policies, func(p policy) bool { return p.concerns(loss) }); i >= 0 {
			actions = append(actions, policies[i].Action)
		}
	}
	return actions
}

// What a policy may have Volcano do while the job is pending or running. RestartJob, RestartTask and RestartPartition end pods that were
// not evicted, and make them again at the cost of a retry. TerminateJob and CompleteJob end the job, and AbortJob does so until somebody
// resumes it. RestartPod costs a retry and no other pod. Others do nothing. A job that is aborted, or about to be, stays so whatever its
// policies say: they do not concern pods of the run that was aborted.
// Source: Execute in running.go, pending.go, aborting.go and aborted.go of pkg/controllers/job/state, and killPods in
// pkg/controllers/job/job_controller_actions.go, of volcano-sh/volcano at ed72c7c.
var endOthers = []string{actionRestart, "RestartTask", "RestartPartition", "TerminateJob", "CompleteJob", actionAbort}

// mayLose returns how many of the workers the job can lose by eviction, as far as its policies go: none, all of them, or as many as it has
// retries left but for the last, with which Volcano would fail it.
func (j *job) mayLose(workers int) int {
	for _, task := range j.Spec.Tasks {
		if task.role == jobs.RoleLauncher {
			continue // its loss is that of the job anyway
		}
		for _, action := range task.reactions(j.Spec.Policies) {
			switch {
			case slices.Contains(endOthers, action):
				return 0
			case action == "RestartPod":
				workers = min(workers, max(j.Spec.MaxRetry.Or(defaultMaxRetry)-1-j.Status.RetryCount.Int(), 0))
			}
		}
	}
	return workers
}
