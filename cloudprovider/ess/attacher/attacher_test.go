package attacher

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/cloudprovider/ess/problem"
)

func TestTheCauseStaysTheSameWhileNothingChanges(t *testing.T) {
	began := time.Unix(1e9, 0)
	waiting := &unattached{instances: map[string]*attempt{
		"i-a": {since: began},
		"i-b": {since: began, refusal: errors.New("refused b")},
		"i-c": {since: began, refusal: errors.New("refused c")},
	}}
	for range 50 {
		found := problem.Set{}
		waiting.report("asg-1", began.Add(reportAfter), found)
		assert.Equal(t, "3 instances were bought for it and are not in it: i-a, i-b, i-c: refused b", found[problem.Key{Pool: "asg-1", Reason: problem.Unattached}])
	}
}
