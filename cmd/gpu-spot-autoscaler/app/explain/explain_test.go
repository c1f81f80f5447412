package explain

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatIsNoPodIsRefused(t *testing.T) {
	for _, pod := range []string{"", "train", "/train", "default/", "default/train/0"} {
		err := run(t.Context(), flags{output: outputText}, pod, nil)
		assert.ErrorContains(t, err, "NAMESPACE/NAME", "%q", pod)
	}
	assert.ErrorContains(t, run(t.Context(), flags{output: "yaml"}, "default/train", nil), "want text or json")
}
