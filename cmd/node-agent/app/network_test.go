package app

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestPodsOfOtherNodesAreRefusedOnceTheNodeHasAPodNetworkThoughItWasReadBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(0, nil)
		a := runAgent(t, n, &instance{})
		other := netip.MustParseAddr("10.1.3.7")
		time.Sleep(10 * time.Minute)
		assert.True(t, a.podOfThisNode(other), "it cannot be told apart yet")

		n.do(func() { n.node.Spec.PodCIDRs = []string{"10.1.2.0/24"} })
		time.Sleep(longestNetworkPause)
		synctest.Wait()
		assert.False(t, a.podOfThisNode(other))
		assert.True(t, a.podOfThisNode(netip.MustParseAddr("10.1.2.7")))

		n.do(func() { n.node.Spec.PodCIDRs = nil }) // which the API server does not allow
		assert.Zero(t, n.wholeReadsIn(2*time.Hour))
		assert.False(t, a.podOfThisNode(other))
	})
}

func TestAPodNetworkThatComesSoonIsSeenSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(0, nil)
		a := runAgent(t, n, &instance{})
		n.do(func() { n.node.Spec.PodCIDRs = []string{"10.1.2.0/24"} })
		time.Sleep(networkPause)
		synctest.Wait()
		assert.False(t, a.podOfThisNode(netip.MustParseAddr("10.1.3.7")))
	})
}

func TestWhereNodesHaveNoPodNetworkTheNodeIsReadForItAFewTimesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newMemoryNode(0, nil)
		runAgent(t, n, &instance{})
		assert.Equal(t, networkReads, n.wholeReadsIn(24*time.Hour))
	})
}

// wholeReadsIn returns how often the Node is read as a whole from now on for so long.
func (n *memoryNode) wholeReadsIn(d time.Duration) int {
	synctest.Wait()
	before := 0
	n.do(func() { before = n.wholeReads })
	time.Sleep(d)
	synctest.Wait()
	after := 0
	n.do(func() { after = n.wholeReads })
	return after - before
}
