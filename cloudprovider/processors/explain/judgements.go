package explain

import (
	"maps"
	"sync"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodegroupset"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/reasons"
)

const (
	// mostJudged bounds the pods of which a judgement is kept.
	mostJudged = 1000
	// judgementAge is for how long a judgement counts: a pod that still waits gets a new one in the next loop.
	judgementAge = 2 * time.Minute
)

// Judgements are what core last found for pods: the reasons by node group, or what was bought. It is safe for concurrent use.
type Judgements struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	byPod judged
}

// judged are the judgements by pod, no more than mostJudged.
type judged map[types.UID]judgement

type judgement struct {
	at     time.Time
	found  map[string]*reasons.Reason
	bought []nodegroupset.ScaleUpInfo
}

// NewJudgements returns judgements of no pod.
func NewJudgements(clk clock.PassiveClock) *Judgements {
	return &Judgements{clock: clk, byPod: judged{}}
}

func (j *Judgements) set(pod *apiv1.Pod, found map[string]*reasons.Reason) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.byPod.put(pod.UID, judgement{at: j.clock.Now(), found: found})
}

func (j *Judgements) bought(pods []*apiv1.Pod, infos []nodegroupset.ScaleUpInfo) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, pod := range pods {
		j.byPod.put(pod.UID, judgement{at: j.clock.Now(), bought: infos})
	}
}

// put keeps the judgement if there is room for it.
func (j judged) put(pod types.UID, made judgement) {
	if _, known := j[pod]; !known && len(j) >= mostJudged {
		maps.DeleteFunc(j, func(_ types.UID, old judgement) bool { return made.at.Sub(old.at) > judgementAge })
		if len(j) >= mostJudged {
			return
		}
	}
	j[pod] = made
}

// of returns the judgement of the pod, if there is one that still counts.
func (j *Judgements) of(pod types.UID) (judgement, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	made, known := j.byPod[pod]
	if !known || j.clock.Since(made.at) > judgementAge {
		return judgement{}, false
	}
	return made, true
}
