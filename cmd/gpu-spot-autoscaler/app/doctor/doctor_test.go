package doctor

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/ram"
)

// alone are the codes whose worlds have a test of their own.
var alone = []Code{
	WrongRole,          // TestARoleThatCannotBeAssumed
	ClusterUnreachable, // TestWithoutAnAPIServerTheCloudIsCheckedAllTheSame
}

// fault is one thing that is wrong in a set-up that is sound otherwise.
type fault struct {
	change func(s *setup)
	// want are the codes that have to be found, and nothing else.
	want []Code
	// says is in the sentence or in the mend of the first.
	says string
}

func firstPool(change func(p *alisim.Pool)) func(*setup) {
	return func(s *setup) { change(&s.world.Pools[0]) }
}

func poolTag(key, value string) func(*setup) {
	return firstPool(func(p *alisim.Pool) { p.Tags[key] = value })
}

// without takes the action out of the RAM policy.
func without(action string) func(*setup) {
	return func(s *setup) {
		taken := false
		for i := range s.world.RAMPolicy.Statement {
			statement := &s.world.RAMPolicy.Statement[i]
			before := len(statement.Action)
			statement.Action = slices.DeleteFunc(slices.Clone(statement.Action), func(a string) bool { return a == action })
			taken = taken || len(statement.Action) < before
		}
		require.True(s.t, taken, "the policy allows %s", action)
		s.world.RAMPolicy.Statement = slices.DeleteFunc(s.world.RAMPolicy.Statement, func(statement ram.Statement) bool { return len(statement.Action) == 0 })
	}
}

// fails has the cloud refuse every call.
func fails(code string, status int) func(*setup) {
	return func(s *setup) {
		s.running = append(s.running, func(cloud *alisim.Server) {
			require.NoError(s.t, cloud.Fault(alisim.Fault{Kind: alisim.FaultError, Code: code, Status: status}))
		})
	}
}

// retires has the cloud not know the instance type any more.
func retires(instanceType string) func(*setup) {
	return func(s *setup) {
		s.running = append(s.running, func(cloud *alisim.Server) { cloud.Retire(instanceType) })
	}
}

// secondType gives the pool another instance type.
func secondType(s *setup) {
	const v100 = "ecs.gn6v-c8g1.2xlarge"
	for _, vswitch := range s.world.VSwitches {
		s.world.Sell(v100, vswitch.Zone, 8, 20)
	}
	firstPool(func(p *alisim.Pool) { p.InstanceTypes = append(p.InstanceTypes, v100) })(s)
}

// loses has the vSwitch deleted.
func loses(vswitch string) func(*setup) {
	return func(s *setup) {
		s.running = append(s.running, func(cloud *alisim.Server) { require.NoError(s.t, cloud.DeleteVSwitch(vswitch)) })
	}
}

// inState moves an instance into a state.
func inState(state string) func(*setup) {
	return func(s *setup) {
		s.running = append(s.running, func(cloud *alisim.Server) {
			require.NoError(s.t, cloud.SetLifecycle(cloud.Instances()[0].ID, state))
		})
	}
}

func with(objects ...runtime.Object) func(*setup) {
	return func(s *setup) { s.objects = append(s.objects, objects...) }
}

func deployment(namespace, name, image string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}},
	}
}

func lease(name string, age time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name},
		Spec:       coordinationv1.LeaseSpec{RenewTime: ptr.To(metav1.NewMicroTime(time.Now().Add(-age)))},
	}
}

func configMap(name, id string, annotations map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "kube-system", Name: name, Labels: map[string]string{"gpu-spot.autoscaling/pool": id}, Annotations: annotations,
	}}
}

// pushService is the Service for notices, with the pods behind it.
func pushService(change func(service *corev1.Service, behind *discoveryv1.EndpointSlice)) func(*setup) {
	const name = "gpu-spot-autoscaler-notices"
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}}
	behind := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	change(service, behind)
	return with(service, behind)
}

// byLaunch has the pool buy by RunInstances, with the policy for that.
func byLaunch(s *setup) {
	poolTag("gpu-spot.autoscaling/purchase", "run-instances")(s)
	s.world.RAMPolicy.Statement = append(s.world.RAMPolicy.Statement, policyOf(s.t, "deploy/ram-policy-run-instances.json").Statement...)
}

func dropAgent(s *setup) { drop[appsv1.DaemonSet](s, "gpu-spot-autoscaler-node-agent") }

// dryRun has the release be a dry run, with the policies of one.
func dryRun(s *setup) {
	object[appsv1.Deployment](s, "gpu-spot-autoscaler").Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"--dry-run"}}}
	for _, suffix := range otherPolicies {
		drop[admissionv1.ValidatingAdmissionPolicy](s, "gpu-spot-autoscaler"+suffix)
		drop[admissionv1.ValidatingAdmissionPolicyBinding](s, "gpu-spot-autoscaler"+suffix)
	}
	const name = "gpu-spot-autoscaler-dry-run"
	with(&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}})(s)
}

func all(changes ...func(*setup)) func(*setup) {
	return func(s *setup) {
		for _, change := range changes {
			change(s)
		}
	}
}

var cloudFaults = map[string]fault{
	"a wrong secret":      {func(s *setup) { s.secret = "wrong" }, []Code{WrongSecret}, "ALIBABA_CLOUD_ACCESS_KEY_SECRET"},
	"an unknown key":      {func(s *setup) { s.keyID = "LTAIunknown" }, []Code{UnknownKey}, "access key"},
	"a wrong region":      {func(s *setup) { s.region = "cn-nowhere" }, []Code{WrongRegion}, "--region"},
	"a cloud that chokes": {fails("Throttling.User", 400), []Code{Throttled}, "Throttling.User"},
	"a cloud that fails":  {fails("ServiceUnavailable", 503), []Code{Unreachable}, "ServiceUnavailable"},

	"a cloud that refuses": {fails("OperationDenied.Unheard", 400), []Code{Refused}, "OperationDenied.Unheard"},
	"no credentials":       {func(s *setup) { s.credentials = noCredentials }, []Code{NoCredentials}, "credentials.secretName"},
	"an expired token":     {func(s *setup) { s.credentials = expiredToken }, []Code{ExpiredToken}, "ALIBABA_CLOUD_SECURITY_TOKEN"},
	"a clock that is behind": {func(s *setup) {
		s.running = append(s.running, func(cloud *alisim.Server) { cloud.Skew(time.Hour) })
	}, []Code{ClockSkew}, "15 minutes"},

	"no pool":                {func(s *setup) { s.clusterName = "other" }, []Code{NoPools}, "--cluster-name"},
	"a pool that is not":     {func(s *setup) { s.nodes = map[string]pool.Bounds{"asg-nowhere": {Max: 1}} }, []Code{NotFound}, "--nodes"},
	"a misspelt tag":         {poolTag("gpu-spot.autoscaling/max-sise", "8"), []Code{Tags}, "did you mean gpu-spot.autoscaling/max-size?"},
	"a broken value":         {poolTag("gpu-spot.autoscaling/cooldown", "soon"), []Code{Tags}, "must be a duration"},
	"bounds that contradict": {poolTag("gpu-spot.autoscaling/min-size", "9"), []Code{Tags}, "above the maximum"},
	"not enabled":            {poolTag("k8s.io/cluster-autoscaler/enabled", "yes"), []Code{Tags, NoPools}, "only true"},
	"not owned":              {poolTag("k8s.io/cluster-autoscaler/my-cluster", "true"), []Code{Tags, NotAllowed}, "only where it is owned"},
	"two clusters":           {poolTag("k8s.io/cluster-autoscaler/second", "owned"), []Code{Tags}, "several clusters"},
	"a tag of the configuration": {firstPool(func(p *alisim.Pool) {
		p.ConfigurationTags = map[string]string{"gpu-spot.autoscaling/targetting": "auto"}
	}), []Code{Tags}, "did you mean"},
	"settings in a ConfigMap":    {with(configMap("pool", group, map[string]string{"gpu-spot.autoscaling/price-cap": "dear"})), []Code{Tags}, "price-cap"},
	"settings of no pool":        {with(configMap("pool", "asg-gone", nil)), []Code{UnknownPool}, "asg-gone"},
	"no configuration":           {firstPool(func(p *alisim.Pool) { p.InstanceTypes, p.Instances = nil, 0 }), []Code{Configuration}, "launch templates"},
	"no user data":               {firstPool(func(p *alisim.Pool) { p.NoUserData = true }), []Code{NoUserData}, "join the cluster"},
	"a retired type":             {retires(a10), []Code{InstanceType}, a10},
	"one retired type of two":    {all(secondType, retires(a10)), []Code{LeftOut}, a10},
	"one deleted vSwitch of two": {loses("vsw-b"), []Code{LeftOut}, "vsw-b"},
	"no vSwitch left":            {all(firstPool(func(p *alisim.Pool) { p.Instances = 0 }), loses("vsw-a"), loses("vsw-b")), []Code{VSwitch}, "vsw-a"},
	"shared GPUs on nodes of several": {func(s *setup) {
		s.world.Types = []alisim.Type{{ID: "ecs.two", VCPU: 8, MemoryGiB: 32, GPUs: 2, GPUModel: "A10", GPUMemGiB: 24, OnDemand: 10, Spot: 4}}
		firstPool(func(p *alisim.Pool) {
			p.InstanceTypes, p.Tags["gpu-spot.autoscaling/shared-gpu"] = []string{"ecs.two"}, "true"
		})(s)
	}, []Code{SharedGPU}, "one GPU"},

	"a suspended group":  {firstPool(func(p *alisim.Pool) { p.SystemSuspended = true }), []Code{Unbuyable}, "SystemSuspended"},
	"no scale-out":       {firstPool(func(p *alisim.Pool) { p.SuspendedProcesses = []string{"ScaleOut"} }), []Code{Unbuyable}, "ScaleOut"},
	"no scale-in":        {firstPool(func(p *alisim.Pool) { p.SuspendedProcesses = []string{"ScaleIn"} }), []Code{ScaleInSuspended}, "given back"},
	"a desired capacity": {firstPool(func(p *alisim.Pool) { p.DesiredCapacity = ptr.To(2) }), []Code{DesiredCapacity}, "DisableDesiredCapacity"},
	"on-demand base":     {firstPool(func(p *alisim.Pool) { p.MultiAZPolicy, p.OnDemandBaseCapacity = "COST_OPTIMIZED", ptr.To(1) }), []Code{OnDemandBase}, "Set it to 0"},
	"on-demand percentage": {firstPool(func(p *alisim.Pool) {
		p.MultiAZPolicy, p.OnDemandPercentageAboveBaseCapacity = "COST_OPTIMIZED", ptr.To(20)
	}), []Code{OnDemandPercentage}, "20%"},
	"composable by default": {firstPool(func(p *alisim.Pool) { p.MultiAZPolicy = "COMPOSABLE" }), []Code{OnDemandPercentage},
		"the default where MultiAZPolicy is COMPOSABLE"},
	"on-demand instead": {firstPool(func(p *alisim.Pool) { p.MultiAZPolicy, p.CompensateWithOnDemand = "COST_OPTIMIZED", ptr.To(true) }),
		[]Code{CompensateWithOnDemand}, "CompensateWithOnDemand"},
	"a remedy of its own": {firstPool(func(p *alisim.Pool) { p.MultiAZPolicy, p.SpotInstanceRemedy = "COST_OPTIMIZED", true }),
		[]Code{SpotInstanceRemedy}, "bought twice"},
	"spot for on-demand": {firstPool(func(p *alisim.Pool) { p.SpotAutoReplaceOnDemand = true }),
		[]Code{SpotAutoReplace}, "SpotAutoReplaceOnDemand"},
	"a protected instance": {inState("Protected"), []Code{Protected}, "SetInstancesProtection"},
	"one on standby":       {inState("Standby"), []Code{Standby}, "Standby"},
	"a stopped one":        {inState("Stopped"), []Code{Stopped}, "Stopped"},

	"nothing allowed":        {firstPool(func(p *alisim.Pool) { p.MaxSize, p.Instances = 0, 0; delete(p.Tags, "gpu-spot.autoscaling/max-size") }), []Code{GroupMaximum}, "its maximum is 0"},
	"a full group":           {firstPool(func(p *alisim.Pool) { p.MaxSize = 2 }), []Code{GroupMaximum}, "2 instances of 2"},
	"no reserve":             {poolTag("gpu-spot.autoscaling/max-size", "10"), []Code{NoReserve}, "below 10"},
	"a vSwitch without room": {func(s *setup) { s.world.VSwitches[0].AvailableIPs = 2 }, []Code{FewAddresses}, "no free address"},
	"few addresses": {func(s *setup) { s.world.VSwitches[0].AvailableIPs, s.world.VSwitches[1].AvailableIPs = 3, 3 },
		[]Code{FewAddresses}, "4 free addresses, and 6 more instances"},
	"no quota":     {func(s *setup) { s.world.Quota.SpotVCPUs = 20 }, []Code{VCPUQuota}, "4 are left, and the smallest instance of the pools has 8"},
	"little quota": {func(s *setup) { s.world.Quota.SpotVCPUs = 40 }, []Code{VCPUQuota}, "24 are left, and the pools may grow by 48"},

	"no launch without its policy":      {poolTag("gpu-spot.autoscaling/purchase", "run-instances"), []Code{NotAllowed}, "RunInstances"},
	"a launch that may not pass a role": {all(byLaunch, without("ram:PassRole")), []Code{NotAllowed}, "RunInstances"},
}

var clusterFaults = map[string]fault{
	"an old Kubernetes": {func(s *setup) { s.version = "v1.29.4-aliyun.1" }, []Code{KubernetesVersion}, "1.30 or newer"},
	"a new Kubernetes":  {func(s *setup) { s.version = "v1.37.0" }, []Code{KubernetesVersion}, "nothing newer than 1.36"},
	"a policy less":     {func(s *setup) { drop[admissionv1.ValidatingAdmissionPolicy](s, "gpu-spot-autoscaler-nodes") }, []Code{PolicyMissing}, "missing"},
	"a dry run that nothing holds to it": {all(dryRun, func(s *setup) { drop[admissionv1.ValidatingAdmissionPolicy](s, "gpu-spot-autoscaler-dry-run") }),
		[]Code{PolicyMissing}, "optional/dry-run.yaml"},
	"a binding less": {func(s *setup) { drop[admissionv1.ValidatingAdmissionPolicyBinding](s, "gpu-spot-autoscaler-pods") }, []Code{PolicyMissing}, "deny anything"},
	"a binding that warns": {func(s *setup) {
		object[admissionv1.ValidatingAdmissionPolicyBinding](s, "gpu-spot-autoscaler").Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Warn}
	}, []Code{PolicyMissing}, "deny anything"},
	"a policy that gives in": {func(s *setup) {
		object[admissionv1.ValidatingAdmissionPolicy](s, "gpu-spot-autoscaler-marks").Spec.FailurePolicy = ptr.To(admissionv1.Ignore)
	}, []Code{PolicyMissing}, "failurePolicy"},
	"an agent that is not ready": {func(s *setup) {
		object[appsv1.DaemonSet](s, "gpu-spot-autoscaler-node-agent").Status.NumberReady = 1
	}, []Code{NodeAgent}, "1 of 2"},
	"nothing tells of reclaims": {all(without("ecs:DescribeInstances"), dropAgent), []Code{NotAllowed, NoNotices}, "DescribeInstances"},
	"push without an address": {pushService(func(service *corev1.Service, _ *discoveryv1.EndpointSlice) {
		service.Spec.Type = corev1.ServiceTypeLoadBalancer
	}), []Code{PushUnreachable}, "no address"},
	"push without pods": {pushService(func(_ *corev1.Service, behind *discoveryv1.EndpointSlice) { behind.Endpoints = nil }),
		[]Code{PushUnreachable}, "no pod"},

	"ACK scales the pool": {with(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "autoscaler-meta"},
		Data: map[string]string{"autoscaler-meta": `{"scaling_configurations":{"asg-1":{}}}`}}), []Code{ACKAutoscaler}, "manual"},
	"GOATScaler":           {with(lease("ack-goatscaler", time.Second)), []Code{OtherAutoscaler}, "another autoscaler"},
	"Cluster Autoscaler":   {with(deployment("kube-system", "aws-cluster-autoscaler", "registry/acs/autoscaler:v1")), []Code{OtherAutoscaler}, "taints"},
	"ACK's own, managed":   {with(lease("cluster-autoscaler", time.Second)), []Code{OtherAutoscaler}, "taints"},
	"the other supervisor": {with(deployment("arena-system", "elastic-job-supervisor", "x")), []Code{JobSupervisor}, "--replicas=0"},

	"a label that Nodes lack":    {poolTag(labelTag, "vision"), []Code{TemplateLabels}, "team=vision"},
	"a taint that no tag tells":  {firstPool(func(p *alisim.Pool) { delete(p.Tags, taintTag) }), []Code{TemplateTaints}, "taint/gpu=true:NoSchedule"},
	"a launcher on spot":         {func(s *setup) { object[corev1.Pod](s, "mpi-launcher").Spec.NodeSelector = nil }, []Code{LauncherOnSpot}, "--launcher-selector"},
	"no file with the request":   {all(dropAgent, func(s *setup) { object[corev1.Pod](s, "train").Spec.Volumes = nil }), []Code{NoDownwardAPI}, "mounts no file"},
	"a file that is never fresh": {all(dropAgent, func(s *setup) { object[corev1.Pod](s, "train").Spec.Containers[0].VolumeMounts[0].SubPath = "x" }), []Code{NoDownwardAPI}, "subPath"},
	"no default class":           {func(s *setup) { drop[storagev1.StorageClass](s, "essd") }, []Code{NoStorageClass}, "none is the default"},
	"a class that is not":        {func(s *setup) { object[corev1.PersistentVolumeClaim](s, "data").Spec.StorageClassName = ptr.To("nvme") }, []Code{NoStorageClass}, "nvme"},
}

// permissions are the actions without each of which RAM refuses something.
func permissions(t *testing.T) (actions []string) {
	for _, statement := range policyOf(t, "deploy/ram-policy.json").Statement {
		actions = append(actions, statement.Action...)
	}
	return actions
}

func TestEachFaultIsFoundAndNothingElse(t *testing.T) {
	found := map[Code]bool{}
	faults := map[string]fault{}
	for _, table := range []map[string]fault{cloudFaults, clusterFaults} {
		for name, f := range table {
			require.NotContains(t, faults, name)
			faults[name] = f
		}
	}
	for _, action := range permissions(t) {
		if action == "ess:ScaleWithAdjustment" {
			continue // which has no dry run
		}
		_, call, _ := strings.Cut(action, ":")
		faults["without "+action] = fault{without(action), []Code{NotAllowed}, call}
	}
	for name, f := range faults {
		for _, code := range f.want {
			found[code] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := soundSetup(t)
			f.change(s)
			report := s.doctor().Examine(t.Context())
			assert.ElementsMatch(t, f.want, codesOf(report), "%v", report.Findings)
			texts := ""
			for _, finding := range report.Findings {
				assert.NotEmpty(t, finding.Sentence, finding.Code)
				assert.NotEmpty(t, finding.Mend, finding.Code)
				assert.Contains(t, Codes, finding.Code)
				texts += finding.String() + "\n"
			}
			assert.Contains(t, texts, f.says)
		})
	}
	for _, code := range Codes {
		assert.NotEqual(t, slices.Contains(alone, code), found[code], "a fault with the code %s", code)
	}
}

// codesOf returns the code of each finding.
func codesOf(report Report) []Code {
	codes := []Code{}
	for _, finding := range report.Findings {
		codes = append(codes, finding.Code)
	}
	return codes
}

func TestNothingIsFoundInASoundSetUp(t *testing.T) {
	const notTried = "ess:ScaleWithAdjustment: it has no dry run. The shipped policy allows it in the same statement as ess:RemoveInstances"
	for name, test := range map[string]struct {
		change    func(s *setup)
		notProven []string
	}{
		"installed":          {func(*setup) {}, []string{notTried}},
		"before the install": {func(s *setup) { s.objects = nil }, []string{notTried}},
		"a dry run":          {dryRun, []string{notTried}},
		"a release that shares the node-agent of another one": {func(s *setup) {
			agent := object[appsv1.DaemonSet](s, "gpu-spot-autoscaler-node-agent")
			agent.Namespace, agent.Name = "team-b", "gpu-spot-b-node-agent"
			object[corev1.Pod](s, "train").Spec.Volumes = nil
		}, []string{notTried}},
		"Cluster Autoscaler that is served": {func(s *setup) {
			object[appsv1.Deployment](s, "gpu-spot-autoscaler").Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{"serve", "--v=2"}}}
			with(deployment("kube-system", "x-cluster-autoscaler", "registry/acs/autoscaler:v1"), lease("cluster-autoscaler", time.Second))(s)
		}, []string{notTried}},
		"a pod that does not wait": {func(s *setup) {
			dropAgent(s)
			object[corev1.Pod](s, "train").Spec.Volumes = nil
			object[corev1.Pod](s, "train").Annotations["gpu-spot.autoscaling/await-checkpoint"] = "false"
		}, []string{notTried}},
		"with push": {pushService(func(service *corev1.Service, _ *discoveryv1.EndpointSlice) {
			service.Spec.Type = corev1.ServiceTypeLoadBalancer
			service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.0.0.9"}}
		}), []string{notTried}},
		"by RunInstances": {byLaunch, []string{
			"ecs:DeleteInstances and ess:AttachInstances: nothing is there that they could be tried on", notTried,
		}},
		"on demand": {firstPool(func(p *alisim.Pool) {
			p.SpotStrategy, p.DesiredCapacity, p.MaxSize = alisim.NoSpot, nil, 8
		}), []string{notTried}},
		"by --nodes": {func(s *setup) {
			s.clusterName, s.nodes = "", map[string]pool.Bounds{group: {Max: 4}}
		}, []string{notTried}},
		"by --nodes, without the tag that has it found": {func(s *setup) {
			s.clusterName, s.nodes = "", map[string]pool.Bounds{group: {Max: 4}}
			poolTag("k8s.io/cluster-autoscaler/enabled", "false")(s)
		}, []string{notTried}},
		"settings in a ConfigMap that kubectl applied": {with(configMap("pool", group, map[string]string{
			"gpu-spot.autoscaling/on-demand-after": "10m", corev1.LastAppliedConfigAnnotation: strings.Repeat("x", 500),
		})), []string{notTried}},
		"an autoscaler that has ended": {with(lease("ack-goatscaler", time.Hour), deployment("kube-system", "cluster-autoscaler-exporter", "x")), []string{notTried}},
		"one that is scaled to zero": {func(s *setup) {
			other := deployment("arena-system", "elastic-job-supervisor", "x")
			other.Spec.Replicas = ptr.To[int32](0)
			with(other)(s)
		}, []string{notTried}},
		"with the policy of the autoscaler alone": {without("ecs:DescribeAccountAttributes"), []string{
			notTried, "the quota of vCPUs of spot instances: ecs DescribeAccountAttributes: Forbidden.RAM: User not authorized to operate on the specified resource, or this API doesn't support RAM. (ecs:DescribeAccountAttributes)",
		}},
		"of which parts may not be read": {func(s *setup) { s.refused = []string{"deployments", "leases"} }, []string{
			notTried,
			`other autoscalers that run outside of the cluster: leases is forbidden: no RBAC policy matched`,
			`other controllers: deployments is forbidden: no RBAC policy matched`,
			`whether the autoscaler is installed: deployments is forbidden: no RBAC policy matched`,
		}},
		"of which the node-agent may not be read": {func(s *setup) {
			s.refused = []string{"daemonsets"}
			object[corev1.Pod](s, "train").Spec.Volumes = nil
		}, []string{notTried, "the node-agent: daemonsets is forbidden: no RBAC policy matched"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := soundSetup(t)
			test.change(s)
			report := s.doctor().Examine(t.Context())
			assert.Empty(t, report.Findings)
			assert.ElementsMatch(t, test.notProven, report.NotProven)
		})
	}
}

func TestTheExaminationChangesNothing(t *testing.T) {
	s := soundSetup(t)
	byLaunch(s)
	var cloud *alisim.Server
	s.running = append(s.running, func(running *alisim.Server) { cloud = running })
	d := s.doctor()
	before := fmt.Sprint(cloud.Instances())
	d.Examine(t.Context())
	assert.Equal(t, before, fmt.Sprint(cloud.Instances()))
	assert.Empty(t, cloud.Requests("ScaleWithAdjustment"))
	known, _ := cloud.Group(group)
	assert.Equal(t, 2, known.Total)
}

func TestErrorsStandBeforeWarnings(t *testing.T) {
	s := soundSetup(t)
	poolTag("gpu-spot.autoscaling/max-size", "10")(s)
	without("ess:RemoveInstances")(s)
	report := s.doctor().Examine(t.Context())
	assert.Equal(t, []Code{NotAllowed, NoReserve}, codesOf(report))
}

// TestARoleThatCannotBeAssumed runs alone: it changes the default transport, which is what the SDK exchanges tokens by.
func TestARoleThatCannotBeAssumed(t *testing.T) {
	s := soundSetup(t)
	s.world.Roles = []string{"acs:ram::1234567890123456:role/another"}
	s.credentials = assumedRole
	report := s.doctor().Examine(t.Context())
	assert.Equal(t, []Code{WrongRole}, codesOf(report), "%v", report.Findings)
	assert.Contains(t, report.Findings[0].Mend, "credentials.rrsa")
}
