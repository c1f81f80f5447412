package client_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// The simulated region: one pool over two zones and two types.
const (
	region       = "ap-southeast-1"
	zoneA, zoneB = "ap-southeast-1a", "ap-southeast-1b"
	small, large = "ecs.test.small", "ecs.test.large"
	pool         = "asg-spot"
)

func simulate(t *testing.T) *alisim.Server {
	t.Helper()
	s, err := alisim.Start(t.Context(), alisim.World{
		Region: region, Temper: temper.Lenient(), // these tests are about what is on the wire
		ActivityDelay: metav1.Duration{Duration: 20 * time.Millisecond},
		VSwitches:     []alisim.VSwitch{{ID: "vsw-a", Zone: zoneA}, {ID: "vsw-b", Zone: zoneB}},
		Types: []alisim.Type{
			{ID: small, VCPU: 8, MemoryGiB: 32, GPUs: 1, GPUModel: "NVIDIA T4", GPUMemGiB: 16, OnDemand: 12, Spot: 4},
			{ID: large, VCPU: 64, MemoryGiB: 512, GPUs: 8, GPUModel: "NVIDIA V100", GPUMemGiB: 32, OnDemand: 100, Spot: 30},
		},
		Pools: []alisim.Pool{{
			ID: pool, MaxSize: 100, InstanceTypes: []string{small, large}, VSwitches: []string{"vsw-a", "vsw-b"},
			SpotStrategy: alisim.SpotAsPriceGo, CompensateWithOnDemand: ptr.To(false),
			Tags:              map[string]string{"owner": "us"},
			ConfigurationTags: map[string]string{"workload": "training"},
		}},
	}, alisim.Options{})
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	return s
}

func connect(t *testing.T, s *alisim.Server) *client.Client {
	t.Helper()
	key := s.AccessKey()
	return connectWith(t, s, credentials.NewStaticAKCredentialsProvider(key.ID, key.Secret))
}

func connectWith(t *testing.T, s *alisim.Server, provider credentials.CredentialsProvider) *client.Client {
	t.Helper()
	c, err := client.New(rpc.Options{
		Region: region, Scheme: "http", Credentials: provider,
		Endpoints: rpc.Endpoints{ESS: s.Endpoint(), ECS: s.Endpoint(), VPC: s.Endpoint(), STS: s.STSEndpoint()},
		Retry:     wait.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 3},
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// done waits for an activity to end.
func done(t *testing.T, c *client.Client, id string) alicloud.Activity {
	t.Helper()
	var last alicloud.Activity
	require.Eventually(t, func() bool {
		got, err := c.Activities(t.Context(), []string{id})
		require.NoError(t, err)
		require.Len(t, got, 1)
		last = got[0]
		return last.Done()
	}, 10*time.Second, 10*time.Millisecond)
	return last
}

func TestBuyingAndGivingBack(t *testing.T) {
	s := simulate(t)
	c := connect(t, s)

	groups, err := c.ScalingGroups(t.Context(), alicloud.GroupFilter{Tags: map[string]string{"owner": "us"}})
	require.NoError(t, err)
	require.Len(t, groups, 1)
	assert.Equal(t, 100, groups[0].MaxSize)
	assert.False(t, groups[0].CompensateWithOnDemand)
	configurations, err := c.ScalingConfigurations(t.Context(), []string{groups[0].ActiveScalingConfigurationID})
	require.NoError(t, err)
	require.Len(t, configurations, 1)
	assert.Equal(t, []string{small, large}, configurations[0].InstanceTypes)
	assert.Equal(t, "training", configurations[0].Tags["workload"])
	vswitches, err := c.VSwitches(t.Context(), groups[0].VSwitchIDs)
	require.NoError(t, err)
	assert.Len(t, vswitches, 2)

	scaled, err := c.Scale(t.Context(), alicloud.ScaleRequest{ScalingGroupID: pool, Delta: 25, ClientToken: "token", Metadata: "meta",
		InstanceType: large, VSwitchIDs: []string{"vsw-b"}, SpotStrategy: alicloud.SpotAsPriceGo})
	require.NoError(t, err)
	bought := done(t, c, scaled.ActivityID)
	assert.Equal(t, alicloud.ActivitySuccessful, bought.Status)
	assert.Equal(t, "meta", bought.Metadata)
	require.Len(t, bought.CreatedInstances, 25)

	var inService []alicloud.ScalingInstance
	require.Eventually(t, func() bool {
		inService, err = c.ScalingInstances(t.Context(), alicloud.InstanceFilter{})
		require.NoError(t, err)
		return len(inService) == 25
	}, 10*time.Second, 10*time.Millisecond)
	assert.Equal(t, large, inService[0].InstanceType)
	assert.Equal(t, zoneB, inService[0].ZoneID)
	assert.Equal(t, alicloud.SpotAsPriceGo, inService[0].SpotStrategy)
	assert.Equal(t, scaled.ActivityID, inService[0].ScalingActivityID)
	assert.False(t, inService[0].Created.IsZero())
	instances, err := c.Instances(t.Context(), bought.CreatedInstances)
	require.NoError(t, err)
	assert.Len(t, instances, 25)

	require.NoError(t, s.Reclaim(bought.CreatedInstances[0]))
	reclaiming, err := c.RecyclingInstances(t.Context())
	require.NoError(t, err)
	require.Len(t, reclaiming, 1)
	assert.Equal(t, bought.CreatedInstances[0], reclaiming[0].ID)
	assert.True(t, reclaiming[0].Recycling())

	id, err := c.Remove(t.Context(), alicloud.RemoveRequest{ScalingGroupID: pool, InstanceIDs: bought.CreatedInstances[:20]})
	require.NoError(t, err)
	assert.Equal(t, alicloud.ActivitySuccessful, done(t, c, id).Status)
	inService, err = c.ScalingInstances(t.Context(), alicloud.InstanceFilter{ScalingGroupID: pool})
	require.NoError(t, err)
	assert.Len(t, inService, 5)
	activities, err := c.GroupActivities(t.Context(), pool, time.Now().Add(-time.Hour))
	require.NoError(t, err)
	assert.GreaterOrEqual(t, len(activities), 2)
}

func TestStockoutIsToldByTheActivity(t *testing.T) {
	s := simulate(t)
	c := connect(t, s)
	s.SetStock(large, zoneA, 0)
	scaled, err := c.Scale(t.Context(), alicloud.ScaleRequest{ScalingGroupID: pool, Delta: 1, ClientToken: "token",
		InstanceType: large, VSwitchIDs: []string{"vsw-a"}, SpotStrategy: alicloud.SpotAsPriceGo})
	require.NoError(t, err, "the call itself succeeds")
	failed := done(t, c, scaled.ActivityID)
	assert.Equal(t, alicloud.ActivityFailed, failed.Status)
	assert.Equal(t, alicloud.Stockout, alicloud.ClassOfCode(failed.ErrorCode), failed.ErrorCode)
}

func TestNothingIsBoughtTwice(t *testing.T) {
	for _, fault := range []alisim.FaultKind{alisim.FaultLostReply, alisim.FaultNotJSON, alisim.FaultThrottle, alisim.FaultError} {
		t.Run(string(fault), func(t *testing.T) {
			s := simulate(t)
			c := connect(t, s)
			require.NoError(t, s.Fault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: fault, Times: 2}))
			scaled, err := c.Scale(t.Context(), alicloud.ScaleRequest{ScalingGroupID: pool, Delta: 3, ClientToken: "token"})
			require.NoError(t, err)
			assert.Len(t, s.Requests("ScaleWithAdjustment"), 3)
			assert.Len(t, done(t, c, scaled.ActivityID).CreatedInstances, 3)
			assert.Len(t, s.Instances(), 3)
		})
	}
}

func TestTheMarket(t *testing.T) {
	c := connect(t, simulate(t))
	types, err := c.InstanceTypes(t.Context(), []string{small, "ecs.unheard-of", large})
	require.NoError(t, err)
	require.Len(t, types, 2)
	assert.Equal(t, alicloud.InstanceType{ID: small, VCPU: 8, MemoryGiB: 32, GPUs: 1, GPUModel: "NVIDIA T4", GPUMemoryGiB: 16, Arch: "amd64"}, types[0])

	history, err := c.SpotPriceHistory(t.Context(), small, "", true, time.Now().Add(-24*time.Hour))
	require.NoError(t, err)
	zones := map[string]bool{}
	for _, p := range history {
		zones[p.ZoneID] = true
		assert.InDelta(t, 4, p.Spot, 1e-6)
		assert.InDelta(t, 12, p.OnDemand, 1e-6)
	}
	assert.Len(t, zones, 2)
	price, err := c.OnDemandPrice(t.Context(), small, zoneA)
	require.NoError(t, err)
	assert.InDelta(t, 12, price, 1e-6)
}

func TestThePoolSaysHowWellItsOfferingsCanBeHad(t *testing.T) {
	s := simulate(t)
	s.SetStock(small, zoneA, 5)
	s.SetStock(small, zoneB, 0)
	found, err := connect(t, s).SpotStrengths(t.Context(), pool)
	require.NoError(t, err)
	assert.ElementsMatch(t, []alicloud.OfferingStrength{
		{InstanceType: small, ZoneID: zoneA, Strength: alicloud.Medium}, {InstanceType: small, ZoneID: zoneB, Strength: alicloud.Weak},
		{InstanceType: large, ZoneID: zoneA, Strength: alicloud.Strong}, {InstanceType: large, ZoneID: zoneB, Strength: alicloud.Strong},
	}, found)
}

func TestWrongKeysAreUnauthorized(t *testing.T) {
	s := simulate(t)
	for name, provider := range map[string]credentials.CredentialsProvider{
		"an unknown key": credentials.NewStaticAKCredentialsProvider("LTAI-nobody", "x"),
		"a wrong secret": credentials.NewStaticAKCredentialsProvider(s.AccessKey().ID, "wrong-secret"),
	} {
		_, err := connectWith(t, s, provider).ScalingGroups(t.Context(), alicloud.GroupFilter{})
		assert.Equal(t, alicloud.Unauthorized, alicloud.ClassOf(err), "%s: %v", name, err)
	}
}

func TestServiceAccountBecomesRole(t *testing.T) {
	s := simulate(t)
	trust(t, s.CAFile())
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(serviceAccountToken()), 0o600))
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "")
	t.Setenv("ALIBABA_CLOUD_ROLE_ARN", "acs:ram::1234567890123456:role/autoscaler")
	t.Setenv("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "acs:ram::1234567890123456:oidc-provider/ack-rrsa")
	t.Setenv("ALIBABA_CLOUD_OIDC_TOKEN_FILE", file)
	groups, err := connectWith(t, s, nil).ScalingGroups(t.Context(), alicloud.GroupFilter{})
	require.NoError(t, err)
	assert.Len(t, groups, 1)
}

// serviceAccountToken has the form of one; the simulator does not check who signed it.
func serviceAccountToken() string {
	part := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	return part(`{"alg":"RS256"}`) + "." + part(fmt.Sprintf(
		`{"iss":"https://kubernetes","aud":["sts.aliyuncs.com"],"sub":"system:serviceaccount:kube-system:gpu-spot-autoscaler","exp":%d}`,
		time.Now().Add(time.Hour).Unix())) + ".signature"
}

// trust makes the SDK's token exchange accept a certificate authority until the test ends.
func trust(t *testing.T, caFile string) {
	t.Helper()
	pem, err := os.ReadFile(caFile)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	transport := http.DefaultTransport.(*http.Transport)
	before := transport.TLSClientConfig
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	t.Cleanup(func() { transport.TLSClientConfig = before })
}
