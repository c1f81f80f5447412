package alisim_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	sdkerrors "github.com/aliyun/alibaba-cloud-sdk-go/sdk/errors"
	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/sts"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/vpc"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// The world of the tests: three zones and three types of which the first is the cheapest per vCPU as spot in zone b.
const (
	region                     = "ap-southeast-1"
	zoneA, zoneB, zoneC        = "ap-southeast-1a", "ap-southeast-1b", "ap-southeast-1c"
	small, medium, large       = "ecs.test.small", "ecs.test.medium", "ecs.test.large"
	spotGroup, onDemandGroup   = "asg-spot", "asg-on-demand"
	vswA, vswB, vswC           = "vsw-a", "vsw-b", "vsw-c"
	activityDelay, noticeDelay = 2 * time.Second, 5 * time.Minute
	healthCheckDelay           = 2 * time.Second
)

func spotPool() alisim.Pool {
	return alisim.Pool{
		ID: spotGroup, MaxSize: 20, InstanceTypes: []string{small, medium}, VSwitches: []string{vswA, vswB, vswC},
		SpotStrategy: alisim.SpotAsPriceGo, CompensateWithOnDemand: ptr.To(false),
		Tags:              map[string]string{"k8s.io/cluster-autoscaler/enabled": "true", "team": "vision"},
		ConfigurationTags: map[string]string{"k8s.io/cluster-autoscaler/node-template/label/workload": "training"},
	}
}

func testWorld() alisim.World {
	w := alisim.NewWorld(region, zoneA, zoneB, zoneC)
	w.Speed, w.Temper = 60, temper.Lenient()
	w.ActivityDelay, w.HealthCheckDelay = metav1.Duration{Duration: activityDelay}, metav1.Duration{Duration: healthCheckDelay}
	w.Types = []alisim.Type{
		{ID: small, VCPU: 8, MemoryGiB: 32, GPUs: 1, GPUModel: "T4", GPUMemGiB: 16, OnDemand: 12, Spot: 4},
		{ID: medium, VCPU: 16, MemoryGiB: 64, GPUs: 1, GPUModel: "A10", GPUMemGiB: 24, OnDemand: 16, Spot: 4.8},
		{ID: large, VCPU: 64, MemoryGiB: 512, GPUs: 8, GPUModel: "V100", GPUMemGiB: 32, OnDemand: 100, Spot: 30},
	}
	w.Pools = []alisim.Pool{
		spotPool(),
		{ID: onDemandGroup, MaxSize: 20, InstanceTypes: []string{large}, VSwitches: []string{vswA}},
	}
	return w
}

// sim is a running world whose time only passes when the test says so, and a real SDK client for each service.
type sim struct {
	*alisim.Server
	t     testing.TB
	clock *clocktesting.FakeClock
	ess   *ess.Client
	ecs   *ecs.Client
	vpc   *vpc.Client
	sts   *sts.Client
}

func start(t testing.TB, change ...func(*alisim.World)) *sim {
	t.Helper()
	w := testWorld()
	for _, c := range change {
		c(&w)
	}
	return startWorld(t, w, alisim.Options{})
}

func startWorld(t testing.TB, w alisim.World, opts alisim.Options) *sim {
	t.Helper()
	s := &sim{t: t, clock: clocktesting.NewFakeClock(time.Now())}
	opts.Clock = s.clock
	var err error
	s.Server, err = alisim.Start(context.Background(), w, opts)
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	s.connect(s.AccessKey())
	return s
}

func (s *sim) connect(key alisim.AccessKey) {
	s.t.Helper()
	var err error
	s.ess, err = ess.NewClientWithAccessKey(region, key.ID, key.Secret)
	require.NoError(s.t, err)
	s.ecs, err = ecs.NewClientWithAccessKey(region, key.ID, key.Secret)
	require.NoError(s.t, err)
	s.vpc, err = vpc.NewClientWithAccessKey(region, key.ID, key.Secret)
	require.NoError(s.t, err)
	s.sts, err = sts.NewClientWithAccessKey(region, key.ID, key.Secret)
	require.NoError(s.t, err)
	s.ess.Domain, s.ecs.Domain, s.vpc.Domain, s.sts.Domain = s.Endpoint(), s.Endpoint(), s.Endpoint(), s.Endpoint()
}

// pass lets time go by, stopping at everything that happens on the way.
func (s *sim) pass(d time.Duration) { s.Pass(s.clock, d) }

// settle lets a scaling activity end.
func (s *sim) settle() { s.pass(activityDelay) }

// scale asks for more or fewer instances.
func (s *sim) scale(group string, delta int, change ...func(*ess.ScaleWithAdjustmentRequest)) (*ess.ScaleWithAdjustmentResponse, error) {
	r := ess.CreateScaleWithAdjustmentRequest()
	r.ScalingGroupId, r.AdjustmentType, r.AdjustmentValue = group, "QuantityChangeInCapacity", requests.NewInteger(delta)
	for _, c := range change {
		c(r)
	}
	return s.ess.ScaleWithAdjustment(r)
}

func parallel(r *ess.ScaleWithAdjustmentRequest) { r.ParallelTask = requests.NewBoolean(true) }

func token(text string) func(*ess.ScaleWithAdjustmentRequest) {
	return func(r *ess.ScaleWithAdjustmentRequest) { r.ClientToken = text }
}

func target(instanceType, vswitch, strategy string) func(*ess.ScaleWithAdjustmentRequest) {
	return func(r *ess.ScaleWithAdjustmentRequest) {
		r.InstanceType, r.VSwitchId, r.SpotStrategy = &[]string{instanceType}, &[]string{vswitch}, strategy
	}
}

// buy scales and waits for the end of the activity, which it returns.
func (s *sim) buy(group string, count int, change ...func(*ess.ScaleWithAdjustmentRequest)) ess.ScalingActivity {
	s.t.Helper()
	resp, err := s.scale(group, count, change...)
	require.NoError(s.t, err)
	s.settle()
	return s.activity(resp.ScalingActivityId)
}

func (s *sim) activity(id string) ess.ScalingActivity {
	s.t.Helper()
	r := ess.CreateDescribeScalingActivitiesRequest()
	r.ScalingActivityId = &[]string{id}
	resp, err := s.ess.DescribeScalingActivities(r)
	require.NoError(s.t, err)
	require.Len(s.t, resp.ScalingActivities.ScalingActivity, 1)
	return resp.ScalingActivities.ScalingActivity[0]
}

func (s *sim) group(id string) ess.ScalingGroup {
	s.t.Helper()
	r := ess.CreateDescribeScalingGroupsRequest()
	r.ScalingGroupId = &[]string{id}
	resp, err := s.ess.DescribeScalingGroups(r)
	require.NoError(s.t, err)
	require.Len(s.t, resp.ScalingGroups.ScalingGroup, 1)
	return resp.ScalingGroups.ScalingGroup[0]
}

func (s *sim) members(group string) []ess.ScalingInstance {
	s.t.Helper()
	r := ess.CreateDescribeScalingInstancesRequest()
	r.ScalingGroupId, r.PageSize = group, requests.NewInteger(50)
	resp, err := s.ess.DescribeScalingInstances(r)
	require.NoError(s.t, err)
	return resp.ScalingInstances.ScalingInstance
}

func ids(list []ess.ScalingInstance) []string {
	var out []string
	for _, i := range list {
		out = append(out, i.InstanceId)
	}
	return out
}

func (s *sim) removeInstances(group string, ids []string, change ...func(*ess.RemoveInstancesRequest)) (*ess.RemoveInstancesResponse, error) {
	r := ess.CreateRemoveInstancesRequest()
	r.ScalingGroupId, r.InstanceId = group, &ids
	for _, c := range change {
		c(r)
	}
	return s.ess.RemoveInstances(r)
}

// codeOf is Alibaba's error code, empty for success.
func codeOf(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	refusal, ok := err.(*sdkerrors.ServerError)
	require.Truef(t, ok, "%T: %v", err, err)
	return refusal.ErrorCode()
}

// raw sends parameters as they are, in query or body.
func (s *sim) raw(method string, p url.Values, inBody bool) (status int, body map[string]any) {
	s.t.Helper()
	address, content := "http://"+s.Endpoint()+"/", ""
	if inBody {
		content = p.Encode()
	} else {
		address += "?" + p.Encode()
	}
	req, err := http.NewRequest(method, address, strings.NewReader(content))
	require.NoError(s.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(text, &body), "%s", text)
	return resp.StatusCode, body
}

// signed returns a well-formed request of an action.
func (s *sim) signed(method, version, action string, change ...func(url.Values)) url.Values {
	key := s.AccessKey()
	p := url.Values{
		"Action": {action}, "Version": {version}, "Format": {"JSON"}, "RegionId": {region}, "AccessKeyId": {key.ID},
		"SignatureMethod": {"HMAC-SHA1"}, "SignatureVersion": {"1.0"}, "SignatureNonce": {uuid.NewString()},
		"Timestamp": {s.clock.Now().UTC().Format("2006-01-02T15:04:05Z")},
	}
	for _, c := range change {
		c(p)
	}
	p.Set("Signature", protocol.Sign(method, p, key.Secret))
	return p
}

func set(name, value string) func(url.Values) { return func(p url.Values) { p.Set(name, value) } }
func drop(name string) func(url.Values)       { return func(p url.Values) { p.Del(name) } }
