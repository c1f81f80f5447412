package notice

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/cloudprovider/api"
)

func TestTheAutoscalerMayRemoveTheAnnotationsOfAllSources(t *testing.T) {
	for _, annotation := range SourceAnnotations {
		assert.True(t, strings.HasPrefix(annotation, api.Prefix), "the admission policies forbid to remove %s", annotation)
	}
}
