package drill

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/test/alisim"
)

func TestWhatWasRolledBackReplacesNothing(t *testing.T) {
	ended := time.Now()
	for name, test := range map[string]struct {
		activity alisim.ActivityView
		want     int
	}{
		"under way":               {alisim.ActivityView{Asked: 3, Created: []string{"i-1"}}, 3},
		"complete":                {alisim.ActivityView{Asked: 2, Created: []string{"i-1", "i-2"}, Ended: ended}, 2},
		"short, some rolled back": {alisim.ActivityView{Asked: 4, Created: []string{"i-1"}, RolledBack: []string{"i-2", "i-3"}, Ended: ended}, 1},
		"all rolled back":         {alisim.ActivityView{Asked: 1, RolledBack: []string{"i-1"}, Ended: ended}, 0},
	} {
		assert.Equal(t, test.want, brought(test.activity), name)
	}
}
