package fault

import (
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/share"
)

// Whoever can write the status of Nodes can declare all of them faulty at once: a detector with a mistake, or somebody with the token of a
// detector. A fault that is more than a few Nodes is that, or is one that new Nodes will have, too. Neither is mended by buying others.

// DefaultMaxNodes is on how many Nodes faults are acted upon: a tenth of a pool, rounded up, and of all pools together.
var DefaultMaxNodes = intstr.FromString("10%")

// countFor is for how long a Node counts after its fault was acted upon. Otherwise a mistake would go through the cluster, as quickly as Nodes
// are replaced.
const countFor = time.Hour

// brake bounds on how many Nodes faults are acted upon. It is not safe for concurrent use.
type brake struct {
	most share.Share
	// actedUpon are the faults that were acted upon, by instance.
	actedUpon map[string]pastFault
}

// pastFault is a fault that was acted upon, at that time.
type pastFault struct {
	pool string
	at   time.Time
}

func newBrake(most share.Share) *brake {
	return &brake{most: most, actedUpon: map[string]pastFault{}}
}

// take enters that the fault of the instance is acted upon. It counts from the first time.
func (b *brake) take(instance, pool string, at time.Time) {
	if _, counted := b.actedUpon[instance]; !counted {
		b.actedUpon[instance] = pastFault{pool, at}
	}
}

// forget forgets what was acted upon long ago, except for the instances whose Nodes still are drained for their fault.
func (b *brake) forget(now time.Time, underWay sets.Set[string]) {
	maps.DeleteFunc(b.actedUpon, func(instance string, f pastFault) bool { return !underWay.Has(instance) && now.Sub(f.at) >= countFor })
}

// holds returns why the fault of a further instance of the pool is not acted upon. The reason is empty if it is. The sizes are how many Nodes
// each pool has.
func (b *brake) holds(instance, pool string, sizes map[string]int) (reason string) {
	if _, counted := b.actedUpon[instance]; counted {
		return ""
	}
	inPool, all := 0, 0
	for _, f := range b.actedUpon {
		if f.pool == pool {
			inPool++
		}
	}
	for _, size := range sizes {
		all += size
	}
	if limit := b.most.Of(sizes[pool]); inPool >= limit {
		return fmt.Sprintf("%d nodes of pool %s are or were faulty in the last %v, and no more than %d may be (--node-fault-max-nodes=%s)", inPool, pool, countFor, limit, b.most)
	}
	if limit := b.most.Of(all); len(b.actedUpon) >= limit {
		return fmt.Sprintf("%d nodes of all pools are or were faulty in the last %v, and no more than %d may be (--node-fault-max-nodes=%s)", len(b.actedUpon), countFor, limit, b.most)
	}
	return ""
}
