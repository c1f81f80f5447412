package work

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
)

func TestPodsThatHadNoTurnAreNotPassedOverInSilence(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	err := NewRequests(1).ForEach(ctx, []*corev1.Pod{{}}, func(context.Context, *corev1.Pod) error { asked++; cancel(); return nil })
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, asked)
	err = NewRequests(1).ForEach(ctx, []*corev1.Pod{{}}, func(context.Context, *corev1.Pod) error { asked++; return nil })
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, asked)
}
