package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/processors/explain"
	"gpu-spot-autoscaler/cloudprovider/reasons"
	"gpu-spot-autoscaler/test/rig"
)

func TestAPersonIsToldWhyAPodIsPendingAndWhatWouldMendIt(t *testing.T) {
	dear := singleOfferingPool("asg-1", 10)
	dear.Tags["gpu-spot.autoscaling/price-cap"] = "0.01"
	s := newSuite(t, newWorld(dear))
	s.InstallManifest(t, secureInstall)
	runReplicas(s)
	viewerConfig(s)
	person, err := s.Cluster.ServiceAccountKubeconfig(t.Context(), metav1.NamespaceDefault, "person")
	require.NoError(t, err)

	train, huge := rig.GPUPod("train", 1), rig.GPUPod("huge", 64)
	s.Submit(t, train, huge)
	s.awaitEvent("NotTriggerScaleUp", "1 price cap 0.01 < price ", "Raise the tag gpu-spot.autoscaling/price-cap of pool asg-1 to at least ")
	messages, err := s.Events(t.Context(), "NotTriggerScaleUp")
	require.NoError(t, err)
	assert.NotContains(t, strings.Join(messages, "\n"), "max node group size")

	var said string
	s.eventually("the leader explains the pod", func(ctx context.Context) (bool, error) {
		out, err := s.explained(ctx, person, "default/train")
		said = out
		return err == nil && strings.Contains(out, "price cap"), nil
	})
	t.Logf("explain pod default/train:\n%s", said)
	assert.Regexp(t, `(?m)^Summary: +It fits 1 of 1 offerings, and none of them can be bought now: price cap 0\.01 < price [\d.]+ \w+ per hour`, said)
	assert.Regexp(t, `(?m)^Step: +Raise the tag gpu-spot\.autoscaling/price-cap of pool asg-1 to at least`, said)
	assert.NotContains(t, said, "max")

	said, err = s.explained(t.Context(), person, "default/huge")
	require.NoError(t, err, said)
	t.Logf("explain pod default/huge:\n%s", said)
	assert.Contains(t, said, "It fits none of the 1 offerings: Insufficient nvidia.com/gpu.")
	assert.Contains(t, said, "or add a pool whose nodes fit it")

	said, err = s.explained(t.Context(), person, "default/train", "-o", "json")
	require.NoError(t, err, said)
	var found explain.Explanation
	require.NoError(t, json.Unmarshal([]byte(said), &found))
	require.Len(t, found.Offerings, 1)
	assert.True(t, found.Offerings[0].Fits)
	require.Len(t, found.Offerings[0].Reasons, 1)
	assert.Equal(t, reasons.PriceCap, found.Offerings[0].Reasons[0].Code)
	assert.Equal(t, found.Step, found.Offerings[0].Reasons[0].Mend)

	s.eventually("the ledger has begun", func(ctx context.Context) (bool, error) {
		said, err = s.printed(ctx, person, "savings")
		return strings.Contains(said, "\ntotal  0.0        0.00"), err
	})

	said, err = s.explained(t.Context(), person, "default/nobody")
	require.NoError(t, err, said)
	assert.Contains(t, said, "There is no such pod.")
	said, err = s.explained(t.Context(), person, "default/train", "--autoscaler-name=other")
	require.Error(t, err)
	t.Logf("of an autoscaler that is not there: %s", said)
	assert.Contains(t, said, "have the Role other-viewer of namespace kube-system bound to you")
}

// explained runs the command with the kubeconfig, and returns what it prints.
func (s *suite) explained(ctx context.Context, kubeconfig, pod string, flags ...string) (string, error) {
	return s.printed(ctx, kubeconfig, append([]string{"explain", "pod", pod}, flags...)...)
}

// printed runs a subcommand with the kubeconfig, and returns what it prints.
func (s *suite) printed(ctx context.Context, kubeconfig string, arguments ...string) (string, error) {
	command := s.Subcommand(ctx, append(arguments, "--kubeconfig="+kubeconfig)...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	return out.String(), err
}
