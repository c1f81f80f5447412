package jobs

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestASystemMayAddNoLabelsToItsPods(t *testing.T) {
	set := PodSet{
		Template: []byte(`{"metadata": {"labels": {"app": "cog"}}, "spec": {"containers": [{"name": "main"}]}}`), Count: 1, Role: RoleWorker, NamePrefix: "cog",
	}
	pods, err := newPods(Job{}, []PodSet{set}, func(*corev1.Pod) int { return 1 })
	require.NoError(t, err)
	require.Len(t, pods, 1)
	assert.Equal(t, "cog-0", pods[0].Name)
	assert.Equal(t, map[string]string{"app": "cog"}, pods[0].Labels)
}
