package deadline

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/pricing"
)

func TestTheValueOfTimeOfTables(t *testing.T) {
	for _, c := range []struct {
		stated *float64
		want   float64
	}{{nil, 0}, {ptr.To(.5), .5}, {ptr.To(0.), worthOnDemand}} {
		assert.Equal(t, c.want, valueFor(c.stated), "%v", ptr.Deref(c.stated, -1))
	}
}

func TestWhatIsStatedIsTheValueOfATable(t *testing.T) {
	for _, stated := range []*float64{nil, ptr.To(0.), ptr.To(4.)} {
		assert.Equal(t, stated, Grid{valueOfTime: valueFor(stated)}.stated())
	}
}

func TestATickOfAPodIsWorthItsPartOfAnInstance(t *testing.T) {
	assert.InDelta(t, 8*.25/6, Grid{tick: shortTick, valueOfTime: 8}.worth(.25, 12), 1e-9)
	assert.InDelta(t, 64*12*.25/6, Grid{tick: shortTick, valueOfTime: pricing.MaxValueOfTime}.worth(.25, 12), 1e-9, "no more counts")
	assert.InDelta(t, 12*.25/6, Grid{tick: shortTick, valueOfTime: worthOnDemand}.worth(.25, 12), 1e-9)
}
