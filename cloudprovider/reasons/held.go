package reasons

import (
	"sync"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Held has the pods for which the last loop looked for no offering, and why not. Each loop begins it anew. It is safe for concurrent use.
type Held struct {
	mu    sync.Mutex
	byPod map[types.UID]*Reason
}

// Replace forgets the reasons of the loop before. The caller must not use the map any more.
func (h *Held) Replace(byPod map[types.UID]*Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byPod = byPod
}

// Add adds a reason for each of the pods that has none in this loop.
func (h *Held) Add(pods []*apiv1.Pod, reason *Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byPod == nil {
		h.byPod = map[types.UID]*Reason{}
	}
	for _, pod := range pods {
		if h.byPod[pod.UID] == nil {
			h.byPod[pod.UID] = reason
		}
	}
}

// Of returns why nothing was bought for the pod, and nil if it was not held back.
func (h *Held) Of(pod types.UID) *Reason {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byPod[pod]
}
