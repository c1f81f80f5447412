package deploy_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestTheNetworkPolicyLetsInWhatTheAutoscalerServesAndNothingElse(t *testing.T) {
	objects := render(t, "networkPolicy.enabled=true", "nodeAgent.enabled=true", "secureServing.enabled=true",
		"push.enabled=true", "push.tokenSecretName=tokens", "push.tlsSecretName=certificates")
	policy := only[*networkingv1.NetworkPolicy](t, objects)
	selector, err := metav1.LabelSelectorAsSelector(&policy.Spec.PodSelector)
	require.NoError(t, err)
	pod := only[*appsv1.Deployment](t, objects).Spec.Template
	assert.True(t, selector.Matches(labels.Set(pod.Labels)))
	agent := only[*appsv1.DaemonSet](t, objects).Spec.Template
	assert.False(t, selector.Matches(labels.Set(agent.Labels)))
	assert.True(t, agent.Spec.HostNetwork, "for which a policy would do nothing")

	served, letIn := sets.New[string](), sets.New[string]()
	for _, port := range pod.Spec.Containers[0].Ports {
		served.Insert(port.Name)
	}
	for _, rule := range policy.Spec.Ingress {
		require.NotEmpty(t, rule.Ports, "a rule without ports lets all in")
		for _, port := range rule.Ports {
			letIn.Insert(port.Port.StrVal)
		}
	}
	assert.Equal(t, sets.List(served), sets.List(letIn))
	assert.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
}

func TestTheNetworkPolicyLetsTheAutoscalerOutToWhatItNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		values   []string
		metadata bool
	}{
		"with the RAM role of the instance": {nil, true},
		"with a Secret":                     {[]string{"credentials.secretName=key"}, false},
		"with RRSA":                         {[]string{"credentials.rrsa.roleARN=acs:ram::1:role/a", "credentials.rrsa.oidcProviderARN=acs:ram::1:oidc-provider/b"}, false},
	} {
		policy := only[*networkingv1.NetworkPolicy](t, render(t, append(c.values, "networkPolicy.enabled=true", "networkPolicy.egressPorts={443,8443}")...))
		out := sets.New[string]()
		for _, rule := range policy.Spec.Egress {
			require.NotEmpty(t, rule.Ports, "a rule without ports lets all out")
			to := []string{}
			for _, peer := range rule.To {
				if peer.IPBlock == nil {
					to = append(to, "pods")
					continue
				}
				to = append(to, peer.IPBlock.CIDR)
			}
			for _, port := range rule.Ports {
				out.Insert(strings.Join(to, ",") + ":" + port.Port.String())
			}
		}
		want := sets.New(":53", ":443", ":8443", "pods:9009")
		if c.metadata {
			want.Insert("100.100.100.200/32:80")
		}
		assert.Equal(t, sets.List(want), sets.List(out), name)
	}
}

func TestThereIsNoNetworkPolicyUnlessItIsAskedFor(t *testing.T) {
	for _, object := range render(t) {
		assert.NotContains(t, object.GetObjectKind().GroupVersionKind().Kind, "NetworkPolicy")
	}
}
