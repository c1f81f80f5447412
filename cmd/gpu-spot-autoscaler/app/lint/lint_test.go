package lint

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/exit"
)

const soundTags = `
k8s.io/cluster-autoscaler/enabled: "true"
k8s.io/cluster-autoscaler/my-cluster: owned
gpu-spot.autoscaling/max-size: "8"
`

func TestWhatIsWrongIsNamedByFileResourceAndKey(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"sound tags":       {text: soundTags},
		"comments only":    {text: "# nothing\n"},
		"another object":   {text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"},
		"values":           {text: "region: cn-hangzhou\nclusterName: c\n"},
		"no spot settings": {text: `{"planned_values": {"root_module": {"resources": [{"address": "a.b", "type": "alicloud_vpc", "values": {}}]}}}`},
		"a misspelt key": {
			text: soundTags + `gpu-spot.autoscaling/max-sise: "3"`,
			want: []string{`f: gpu-spot.autoscaling/max-sise: "3": there is no such setting; did you mean gpu-spot.autoscaling/max-size?`},
		},
		"a broken value": {
			text: soundTags + `gpu-spot.autoscaling/cooldown: soon`,
			want: []string{`f: gpu-spot.autoscaling/cooldown: "soon": must be a duration such as 90s, 10m or 1h30m, from 0s to 168h0m0s`},
		},
		"a group of no cluster": {
			text: `k8s.io/cluster-autoscaler/enabled: "yes"`,
			want: []string{`f: k8s.io/cluster-autoscaler/enabled: is "yes": only true puts the scaling group under management`},
		},
		"tags of the wrong cluster": {
			text: `{"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/a": "true"}`,
			want: []string{`f: k8s.io/cluster-autoscaler/a: is "true": the shipped RAM policy allows purchases only where it is owned`},
		},
		"an answer of ESS": {
			text: `{"ScalingGroups": {"ScalingGroup": [{"ScalingGroupId": "asg-1", "Tags": {"Tag": [{"TagKey": "gpu-spot.autoscaling/min-size", "TagValue": "-1"}]}},
				{"ScalingGroupId": "asg-2", "Tags": {"Tag": [{"TagKey": "k8s.io/cluster-autoscaler/enabled", "TagValue": "true"}, {"TagKey": "k8s.io/cluster-autoscaler/a", "TagValue": "owned"}]}}]}}`,
			want: []string{`f: asg-1: gpu-spot.autoscaling/min-size: "-1": must be a whole number from 0 to 2000`},
		},
		"an answer of ESS without a group": {
			text: `{"ScalingGroups": {"ScalingGroup": []}, "TotalCount": 0}`,
			want: []string{`f: ScalingGroups: there is no scaling group: check the id and the region that were asked for`},
		},
		"an answer of the SDK, of a group that is not managed": {
			text: `{"ScalingGroups": [{"ScalingGroupId": "asg-1", "Tags": []}]}`,
			want: []string{`f: k8s.io/cluster-autoscaler/enabled: no scaling group here has it, so none is managed`},
		},
		"a ConfigMap": {
			text: "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: pool\n  labels: {gpu-spot.autoscaling/pool: asg-1}\n  annotations: {gpu-spot.autoscaling/price-cup: '1'}\n",
			want: []string{`f: ConfigMap pool: gpu-spot.autoscaling/price-cup: "1": there is no such setting; did you mean gpu-spot.autoscaling/price-cap?`},
		},
		"a job whose pods say what may be bought for them": {
			text: "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: train}\nspec:\n  pytorchReplicaSpecs:\n" +
				"    Master: {template: {metadata: {annotations: {gpu-spot.autoscaling/capacity: cheap, gpu-spot.autoscaling/value-of-time: '-1'}}}}\n" +
				"    Worker: {template: {metadata: {annotations: {gpu-spot.autoscaling/capacity: spot-only, gpu-spot.autoscaling/on-demand-floor: 25%}}}}\n",
			want: []string{
				`f: PyTorchJob train: gpu-spot.autoscaling/capacity: "cheap": is not spot-only, spot-then-on-demand, or on-demand`,
				`f: PyTorchJob train: gpu-spot.autoscaling/value-of-time: "-1": is not money per instance-hour from 0 to 1000000`,
				`f: PyTorchJob train: gpu-spot.autoscaling/on-demand-floor: "25%": is not possible for a pod that takes spot only`,
			},
		},
		"a pod that says it rightly": {
			text: "apiVersion: v1\nkind: Pod\nmetadata: {name: p, annotations: {gpu-spot.autoscaling/capacity: on-demand, gpu-spot.autoscaling/on-demand-floor: '2'}}\n",
		},
		"a ConfigMap without its label, after a sound one": {
			text: "---\n# a\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: other}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: pool\n  annotations: {gpu-spot.autoscaling/price-cap: '1'}\n",
			want: []string{`f: ConfigMap pool: gpu-spot.autoscaling/pool: this label is missing, so its annotations are read for no pool`},
		},
		"a plan of Terraform": {
			text: `{"planned_values": {"root_module": {"child_modules": [{"resources": [
				{"address": "module.gpu.alicloud_ess_scaling_group.a", "type": "alicloud_ess_scaling_group", "values": {
					"multi_az_policy": "COST_OPTIMIZED", "spot_instance_remedy": true, "desired_capacity": 2,
					"tags": {"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/c": "owned"}}},
				{"address": "module.gpu.alicloud_ess_scaling_configuration.a", "type": "alicloud_ess_scaling_configuration", "values": {
					"spot_strategy": "SpotAsPriceGo", "tags": {"gpu-spot.autoscaling/targetting": "auto"}}}]}]}}}`,
			want: []string{
				"f: module.gpu.alicloud_ess_scaling_group.a: compensate_with_on_demand: CompensateWithOnDemand is on: the scaling group buys pay-as-you-go where spot is out",
				"f: module.gpu.alicloud_ess_scaling_group.a: desired_capacity: the scaling group has a desired capacity: it replaces reclaimed instances by itself, so they are bought twice, and takes one purchase at a time. Call ModifyScalingGroup with DisableDesiredCapacity=true",
				"f: module.gpu.alicloud_ess_scaling_group.a: spot_instance_remedy: SpotInstanceRemedy is on: the scaling group replaces reclaimed instances by itself, so they are bought twice",
				`f: module.gpu.alicloud_ess_scaling_configuration.a: gpu-spot.autoscaling/targetting: "auto": there is no such setting; did you mean gpu-spot.autoscaling/targeting?`,
			},
		},
		"a plan of on-demand instances": {
			text: `{"planned_values": {"root_module": {"resources": [
				{"address": "alicloud_ess_scaling_group.a", "type": "alicloud_ess_scaling_group", "values": {
					"on_demand_percentage_above_base_capacity": 100, "desired_capacity": 2,
					"tags": {"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/c": "owned"}}},
				{"address": "alicloud_ess_scaling_configuration.a", "type": "alicloud_ess_scaling_configuration", "values": {
					"spot_strategy": "NoSpot"}}]}}}`,
		},
		"misspelt values": {
			text: "region: cn-hangzhou\nreplica: 2\ncredentials: {secretname: x}\nextraArgs: {address: ':1'}\n",
			want: []string{
				"f: additional properties 'replica' not allowed",
				"f: credentials: additional properties 'secretname' not allowed",
				"f: extraArgs.address: value must be one of ':8085', '0.0.0.0:8085', '[::]:8085'",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := File("f", []byte(test.text), nil)
			require.NoError(t, err)
			var said []string
			for _, finding := range found {
				said = append(said, finding.String())
			}
			assert.Equal(t, test.want, said)
		})
	}
}

func TestTheExitCodeTellsFaultsFromFilesThatCannotBeRead(t *testing.T) {
	sound, faulty := filepath.Join(t.TempDir(), "sound.yaml"), filepath.Join(t.TempDir(), "faulty.yaml")
	require.NoError(t, os.WriteFile(sound, []byte(soundTags), 0o600))
	require.NoError(t, os.WriteFile(faulty, []byte("gpu-spot.autoscaling/max-sise: x"), 0o600))
	run := func(args ...string) error {
		command := NewCommand()
		command.SilenceErrors, command.SilenceUsage = true, true
		command.SetOut(&bytes.Buffer{})
		command.SetArgs(args)
		return command.Execute()
	}
	err := run(sound)
	assert.NoError(t, err)
	err = run(sound, faulty)
	assert.ErrorIs(t, err, exit.Faults)
	err = run("no-such-file")
	assert.ErrorContains(t, err, "no-such-file")
	empty := filepath.Join(t.TempDir(), "empty.yaml")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	assert.ErrorContains(t, run(empty), "empty.yaml: it is empty", "of a pipe whose first command failed")
}

func TestLintAsJSON(t *testing.T) {
	var out bytes.Buffer
	command := NewCommand()
	command.SilenceErrors, command.SilenceUsage = true, true
	command.SetOut(&out)
	command.SetIn(bytes.NewReader([]byte("region: 1")))
	command.SetArgs([]string{"-o", "json", "-"})
	assert.ErrorIs(t, command.Execute(), exit.Faults)
	var found []Finding
	require.NoError(t, json.Unmarshal(out.Bytes(), &found))
	assert.Equal(t, []Finding{{File: "-", Key: "region", Message: "got number, want string"}}, found)
}
