package report

import (
	"context"
	"testing"
)

func TestWatchCoreProbesAtLeastOnceAndEndsWithItsContextToo(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := WatchCore(ctx)
	cancel()
	if core := stop(); core.Best <= 0 || core.P50 < core.Best || core.P99 < core.P50 {
		t.Errorf("got %+v", core)
	}
}
