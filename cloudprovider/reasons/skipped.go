package reasons

import (
	"sync"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Skipped has the pods for which the last loop looked for no offering, and why not. Each loop begins it anew. It is safe for concurrent use.
type Skipped struct {
	mu    sync.Mutex
	byPod map[types.UID]*Reason
}

// Replace forgets the reasons of the loop before. The caller must not use the map any more.
func (s *Skipped) Replace(byPod map[types.UID]*Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.byPod = byPod
}

// Add adds a reason for each of the pods that has none in this loop.
func (s *Skipped) Add(pods []*apiv1.Pod, reason *Reason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byPod == nil {
		s.byPod = map[types.UID]*Reason{}
	}
	for _, pod := range pods {
		if s.byPod[pod.UID] == nil {
			s.byPod[pod.UID] = reason
		}
	}
}

// Of returns why nothing was bought for the pod, and nil if it was not skipped.
func (s *Skipped) Of(pod types.UID) *Reason {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byPod[pod]
}
