package nested

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFingerprintChangesWithTheSources(t *testing.T) {
	dir, shared := t.TempDir(), t.TempDir()
	sources := []string{dir, shared}
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	seen := map[string]bool{}
	for _, change := range []func(){
		func() { write("a", "1") },
		func() { write("a", "2") },
		func() { write("b", "") },
		func() { require.NoError(t, os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "c"))) },
		func() { require.NoError(t, os.WriteFile(filepath.Join(shared, "a"), nil, 0o600)) },
	} {
		change()
		sum, err := fingerprint(sources)
		require.NoError(t, err)
		require.False(t, seen[sum])
		seen[sum] = true
	}
	sum, err := fingerprint(sources, "-X a.b=c")
	require.NoError(t, err)
	require.False(t, seen[sum], "other linker flags are another binary")
}
