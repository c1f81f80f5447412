// Package giveback gives back instances that nobody takes away, once their Nodes are drained. It does what is Alibaba Cloud's part in a reclaim.
package giveback

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/reclaim/cluster"
	"gpu-spot-autoscaler/cloudprovider/reclaim/notice"
)

// retryAfter is how long after an attempt to give back an instance the next one is made, if the instance is still there.
const retryAfter = 30 * time.Second

// Pools are implemented by *ess.Provider.
type Pools interface {
	// GiveBack gives back the Node's instance. It returns after the cloud has accepted that. ess.IsRefused tells an error that says that the
	// instance has to stay from one of an attempt that failed.
	GiveBack(node *corev1.Node) error
}

// Config is what a Giver is made of. Everything is required.
type Config struct {
	// Source is that of the notices of the instances.
	Source   notice.Source
	Cluster  *cluster.Cluster
	Notices  *notice.Store
	Removals *notice.Removals
	Pools    Pools
	Clock    clock.PassiveClock
	// IsDue returns whether the instance of the Node, which has such a notice, is to be given back now.
	IsDue func(node *corev1.Node, n notice.Notice) bool
	// Given is called once the cloud has accepted it, and Stays once for each error with which it did not. Both may be called concurrently.
	Given func(node *corev1.Node)
	Stays func(node *corev1.Node, instance string, err error)
}

// Giver gives back instances. Look belongs to one goroutine; WasRefused is safe for concurrent use.
type Giver struct {
	config   Config
	attempts attempts
}

// New returns a Giver that has tried nothing yet.
func New(config Config) *Giver {
	return &Giver{config: config, attempts: attempts{byInstance: map[string]attempt{}}}
}

// WasRefused returns whether the last attempt has shown that the instance has to stay. One that is under way has not: the cloud may accept it.
func (g *Giver) WasRefused(instance string) bool { return g.attempts.wasRefused(instance) }

// IsUnderWay returns whether the cloud is being asked to remove the instance.
func (g *Giver) IsUnderWay(instance string) bool { return g.attempts.isUnderWay(instance) }

// Look gives back the instances that are due. It does not wait for the cloud, which start does in a goroutine.
func (g *Giver) Look(ctx context.Context, start func(func())) {
	noticed := sets.New[string]()
	for _, node := range g.config.Cluster.MarkedNodes() {
		n, reclaiming := g.config.Notices.Of(node)
		if !reclaiming || n.Source != g.config.Source {
			continue
		}
		noticed.Insert(n.InstanceID)
		if !g.config.IsDue(node, n) || g.config.Removals.IsUnderWay(node) || g.config.Notices.Verdicts.On(n.InstanceID) != notice.Pending {
			continue
		}
		if g.attempts.begin(n.InstanceID, g.config.Clock.Now()) {
			start(func() { g.giveBack(ctx, node, n.InstanceID) })
		}
	}
	g.attempts.forgetOthers(noticed)
}

func (g *Giver) giveBack(ctx context.Context, node *corev1.Node, instance string) {
	err := g.config.Pools.GiveBack(node)
	news := g.attempts.end(instance, err, g.config.Clock.Now())
	logger := klog.FromContext(ctx).WithValues("node", klog.KObj(node), "instance", instance, "source", g.config.Source)
	switch {
	case err == nil:
		logger.Info("Gave back the instance of a drained node")
		g.config.Given(node)
	case ctx.Err() != nil:
	default:
		logger.Error(err, "Could not give back the instance of a drained node, will try again")
		if news {
			g.config.Stays(node, instance, err)
		}
	}
}

// attempts has the attempts to give back instances. It is safe for concurrent use.
type attempts struct {
	mu         sync.Mutex
	byInstance map[string]attempt
}

// attempt is the last one to give back an instance.
type attempt struct {
	underWay bool
	// err is how it ended, empty for a success, and ended is when. refused is true if the instance has to stay.
	err     string
	refused bool
	ended   time.Time
}

func (a *attempts) wasRefused(instance string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last := a.byInstance[instance]
	return last.refused && !last.underWay
}

func (a *attempts) isUnderWay(instance string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byInstance[instance].underWay
}

// begin notes an attempt to give back the instance now. It returns false, and notes nothing, if one is under way or the last was a moment
// ago.
func (a *attempts) begin(instance string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, tried := a.byInstance[instance]
	if last.underWay || tried && now.Sub(last.ended) < retryAfter {
		return false
	}
	last.underWay = true
	a.byInstance[instance] = last
	return true
}

// end notes how the attempt has ended, and returns whether that is another error than the last time.
func (a *attempts) end(instance string, err error, now time.Time) (news bool) {
	ended := attempt{ended: now, refused: ess.IsRefused(err)}
	if err != nil {
		ended.err = err.Error()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	news = ended.err != "" && ended.err != a.byInstance[instance].err
	a.byInstance[instance] = ended
	return news
}

// forgetOthers forgets the attempts with all other instances.
func (a *attempts) forgetOthers(instances sets.Set[string]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.byInstance, func(instance string, last attempt) bool { return !last.underWay && !instances.Has(instance) })
}
