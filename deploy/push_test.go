package deploy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

const addressType = "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type"

// pushValues turn the endpoint for notices on.
func pushValues(values ...string) []string {
	return append([]string{"push.enabled=true", "push.tokenSecretName=tokens", "push.tlsSecretName=certificates"}, values...)
}

func TestThePushEndpointIsNotPublicUnlessItIsClosedToTheRestOfTheWorld(t *testing.T) {
	const (
		balancer = "push.service.type=LoadBalancer"
		public   = "push.service.public=true"
		network  = "push.service.loadBalancerClass=alibabacloud.com/nlb"
		ranges   = "push.service.loadBalancerSourceRanges={203.0.113.0/24}"
		acl      = `push.service.annotations.service\.beta\.kubernetes\.io/alibaba-cloud-loadbalancer-acl-`
	)
	for name, tc := range map[string]struct {
		values  []string
		kind    corev1.ServiceType
		address string
	}{
		"by default":                     {nil, corev1.ServiceTypeClusterIP, ""},
		"with a load balancer":           {[]string{balancer}, corev1.ServiceTypeLoadBalancer, "intranet"},
		"public, by source ranges":       {[]string{balancer, public, network, ranges}, corev1.ServiceTypeLoadBalancer, "internet"},
		"public, by access control list": {[]string{balancer, public, acl + "status=on", acl + "type=white", acl + "id=acl-1"}, corev1.ServiceTypeLoadBalancer, "internet"},
	} {
		t.Run(name, func(t *testing.T) {
			service := named[*corev1.Service](t, render(t, pushValues(tc.values...)...), "gpu-spot-autoscaler-notices")
			assert.Equal(t, tc.kind, service.Spec.Type)
			assert.Equal(t, tc.address, service.Annotations[addressType])
		})
	}
	for name, values := range map[string][]string{
		"open to the world":                           {balancer, public},
		"ranges that a Classic Load Balancer ignores": {balancer, public, ranges},
		"a Network Load Balancer without ranges":      {balancer, public, network},
		"the whole world as a range":                  {balancer, public, network, "push.service.loadBalancerSourceRanges={10.0.0.0/8,0.0.0.0/0}"},
		"the whole world of IPv6":                     {balancer, public, network, "push.service.loadBalancerSourceRanges={::/0}"},
		"a list of whom not to let in":                {balancer, public, acl + "status=on", acl + "type=black", acl + "id=acl-1"},
		"a list that is off":                          {balancer, public, acl + "status=off", acl + "type=white", acl + "id=acl-1"},
		"public by its annotation alone":              {balancer, `push.service.annotations.service\.beta\.kubernetes\.io/alibaba-cloud-loadbalancer-address-type=internet`},
		"a port of every node":                        {"push.service.type=NodePort"},
		"public, and no load balancer":                {public},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := helm(t, pushValues(values...)...)
			assert.ErrorContains(t, err, "push.service")
		})
	}
}

func TestTokensInURLsAreTakenOnlyWhereThatIsAskedFor(t *testing.T) {
	args := func(values ...string) []string {
		return only[*appsv1.Deployment](t, render(t, pushValues(values...)...)).Spec.Template.Spec.Containers[0].Args
	}
	assert.NotContains(t, args(), "--notice-token-in-url")
	require.Contains(t, args("push.tokenInURL=true"), "--notice-token-in-url")
	assertFlags(t, []string{"--notice-token-in-url"}, "../cmd/gpu-spot-autoscaler")
}
