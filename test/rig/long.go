package rig

import "testing"

// Long skips the test under go test -short, as make test runs it: it takes minutes of a machine with two cores, and what it is about
// other tests touch too. make test-all runs it.
func Long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes minutes: make test-all runs it")
	}
}
