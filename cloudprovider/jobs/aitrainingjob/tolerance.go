package aitrainingjob

import (
	"slices"
	"strconv"
	"strings"
)

// What a container exits with that the kubelet ends, by SIGTERM or by SIGKILL.
var killed = []int{128 + 15, 128 + 9}

// tolerance says which failed pods the operator replaces, and which pods with them. The restartPolicy is Always or OnFailure for all, and
// with ExitCode and OnNodeFailWithExitCode it goes by the exit codes: "1,2,3" or "1-100".
//
// The kubelet says of a pod that is evicted, before it is gone, that it has failed, with one of the exit codes above unless the program
// chooses another. The event PodForceDeleted does not cover that: it is a deletion without a grace period, and an eviction has one, as has
// a deletion at the end of a drain (deleteOptions in cloudprovider/reclaim/drain). Nor do NodeFail and nodeNotReady, because the Node is
// ready until its pods are gone.
//
// Source: FaultTolerantPolicy and TrainingJobPodForceDeleteEvent in pkg/apis/aitj-operator/v1/types.go of PaddlePaddle/PaddleFlow, the
// definition of Baidu's; reconcileContainers and reconcilePods in pkg/controller/pod.go of elasticdeeplearning/trainingjob-operator at
// 148db3b, the operator that it came from, whose restartScope is All by default.
type tolerance struct {
	RestartPolicy string `json:"restartPolicy"`
	RestartScope  string `json:"restartScope"`
	ExitCodes     string `json:"exitCodes"`
}

// replacesKilled returns whether the operator replaces a pod that was killed, and no other pod with it.
func (t tolerance) replacesKilled() bool {
	if t.RestartScope != "Pod" {
		return false
	}
	switch t.RestartPolicy {
	case "Always", "OnFailure":
		return true
	case "ExitCode", "OnNodeFailWithExitCode":
		return slices.ContainsFunc(killed, t.names)
	}
	return false
}

func (t tolerance) names(code int) bool {
	return slices.ContainsFunc(strings.Split(t.ExitCodes, ","), func(codes string) bool {
		from, to, isRange := strings.Cut(codes, "-")
		if !isRange {
			to = from
		}
		first, err := strconv.Atoi(strings.TrimSpace(from))
		last, errOfLast := strconv.Atoi(strings.TrimSpace(to))
		return err == nil && errOfLast == nil && first <= code && code <= last
	})
}

// mayLose returns how many of its pods the job can lose by eviction, as far as its policies go.
func (s *replicaSpec) mayLose(pods, restarts int) int {
	if !slices.ContainsFunc(append(s.FaultTolerantPolicy, s.tolerance), tolerance.replacesKilled) {
		return 0
	}
	return min(pods, max(s.RestartLimit.Or(restarts+pods)-restarts, 0))
}
