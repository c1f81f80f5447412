package ledger

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFailuresAreCountedByNoMoreCodesThanAreDocumented(t *testing.T) {
	for code, want := range map[string]string{
		"OperationDenied.NoStock": "OperationDenied.NoStock", codeCameShort: codeCameShort, codeTimedOut: codeTimedOut, codeUnknown: codeUnknown,
		"Whatever.Comes.Next": "Other", "": "Other",
	} {
		assert.Equal(t, want, codeLabel(code), code)
	}
}
