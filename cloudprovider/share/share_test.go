package share

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestSharesAreRoundedUpAndNumbersStay(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "3": 3, "0%": 0, "1%": 1, "10%": 3, "100%": 25, "120%": 30} {
		s, err := Parse(intstr.Parse(text))
		require.NoError(t, err)
		assert.Equal(t, want, s.Of(25), text)
		assert.Equal(t, text, s.String())
	}
}

func TestWhatIsNoShareIsNamed(t *testing.T) {
	for _, text := range []string{"-1", "-5%", "many", "1.5%", ""} {
		_, err := Parse(intstr.Parse(text))
		assert.ErrorContains(t, err, text)
	}
}
