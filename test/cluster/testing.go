package cluster

import (
	"context"
	"testing"
	"time"
)

const (
	testStartTimeout = 15 * time.Minute // the first test may have to build
	testLogLines     = 40
)

// StartForTest starts a cluster for the length of a test. If the test fails, its log ends with the components' last
// lines.
func StartForTest(t testing.TB) *Cluster {
	t.Helper()
	return StartForTestWith(t, Options{})
}

// StartForTestWith is [StartForTest] with options; without [Options.Output] it tells the test's log.
func StartForTestWith(t testing.TB, opts Options) *Cluster {
	t.Helper()
	if opts.Output == nil {
		opts.Output = t.Output()
	}
	ctx, cancel := context.WithTimeout(t.Context(), testStartTimeout)
	defer cancel()
	c, err := Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the cluster's last words:\n%s", c.Logs(testLogLines))
		}
		if err := c.Err(); err != nil {
			t.Errorf("the cluster broke during the test: %v", err)
		}
		c.Stop()
	})
	return c
}
