package reasons

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Held is why the last loop bought nothing for pods that it did not even look for offerings for. The loop replaces it as a whole. It is
// safe for concurrent use.
type Held struct {
	mu    sync.Mutex
	byPod map[types.UID]*Reason
}

// Replace forgets the reasons of the loop before. The caller must not change the map any more.
func (h *Held) Replace(byPod map[types.UID]*Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.byPod = byPod
}

// Of returns why nothing was bought for the pod, and nil if it was not held back.
func (h *Held) Of(pod types.UID) *Reason {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byPod[pod]
}
