package alisim_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/requests"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
)

const versionESS = "2014-08-28"

func TestRequestsAreAuthenticated(t *testing.T) {
	s := start(t)
	stamp := func(d time.Duration) func(url.Values) {
		return func(p url.Values) { p.Set("Timestamp", s.clock.Now().Add(d).UTC().Format("2006-01-02T15:04:05Z")) }
	}
	for _, test := range []struct {
		name   string
		change func(url.Values)
		status int
		code   string
	}{
		{"well signed", func(url.Values) {}, 200, ""},
		{"unknown key", set("AccessKeyId", "LTAInobody"), 404, "InvalidAccessKeyId.NotFound"},
		{"no key", drop("AccessKeyId"), 400, "MissingAccessKeyId"},
		{"no nonce", drop("SignatureNonce"), 400, "MissingSignatureNonce"},
		{"no timestamp", drop("Timestamp"), 400, "MissingTimestamp"},
		{"other method", set("SignatureMethod", "HMAC-SHA256"), 400, "InvalidSignatureMethod"},
		{"mistyped timestamp", set("Timestamp", "yesterday"), 400, "InvalidTimeStamp.Format"},
		{"clock 14 minutes behind", stamp(-14 * time.Minute), 200, ""},
		{"clock 16 minutes behind", stamp(-16 * time.Minute), 400, "InvalidTimeStamp.Expired"},
		{"clock 16 minutes ahead", stamp(16 * time.Minute), 400, "InvalidTimeStamp.Expired"},
		{"token with a lasting key", set("SecurityToken", "x"), 400, "InvalidSecurityToken.MismatchWithAccessKey"},
		{"characters that need care", set("ScalingGroupName", "a b*c~d+e/f=g&h%ü"), 200, ""},
		{"no action", drop("Action"), 400, "MissingAction"},
		{"unknown action", set("Action", "DescribeNothing"), 404, "InvalidAction.NotFound"},
		{"action of another service", set("Action", "DescribeInstances"), 404, "InvalidAction.NotFound"},
		{"unknown version", set("Version", "2020-01-01"), 400, "InvalidVersion"},
		{"another region", set("RegionId", "cn-nowhere"), 404, "InvalidRegionId.NotFound"},
	} {
		for _, inBody := range []bool{false, true} {
			where := map[bool]string{false: " in query", true: " in body"}[inBody]
			t.Run(test.name+where, func(t *testing.T) {
				status, body := s.raw(http.MethodPost, s.signed(http.MethodPost, versionESS, "DescribeScalingGroups", test.change), inBody)
				assert.Equal(t, test.status, status)
				assert.NotEmpty(t, body["RequestId"])
				if test.code == "" {
					assert.Contains(t, body, "ScalingGroups")
				} else {
					assert.Equal(t, test.code, body["Code"])
					assert.NotEmpty(t, body["Message"])
					assert.NotEmpty(t, body["HostId"])
				}
			})
		}
	}
}

func TestTamperedRequestsAreRefused(t *testing.T) {
	s := start(t)
	p := s.signed(http.MethodPost, versionESS, "DescribeScalingGroups")
	p.Set("PageSize", "50")
	status, body := s.raw(http.MethodPost, p, false)
	assert.Equal(t, 400, status)
	assert.Equal(t, "SignatureDoesNotMatch", body["Code"])
}

func TestWrongSecretIsRefusedAndTheSDKSaysSo(t *testing.T) {
	s := start(t)
	s.connect(alisim.AccessKey{ID: s.AccessKey().ID, Secret: "wrong"})
	_, err := s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
	assert.Equal(t, "SignatureDoesNotMatch", codeOf(t, err))
	assert.ErrorContains(t, err, "InvalidAccessKeySecret", "the SDK compares the strings to sign and blames the secret")
}

func TestNoncesAreUsedOnce(t *testing.T) {
	s := start(t)
	p := s.signed(http.MethodPost, versionESS, "DescribeScalingGroups")
	status, _ := s.raw(http.MethodPost, p, false)
	require.Equal(t, 200, status)
	status, body := s.raw(http.MethodPost, p, false)
	assert.Equal(t, 400, status)
	assert.Equal(t, "SignatureNonceUsed", body["Code"])
}

func TestGetIsSignedAsGet(t *testing.T) {
	s := start(t)
	status, _ := s.raw(http.MethodGet, s.signed(http.MethodGet, versionESS, "DescribeScalingGroups"), false)
	assert.Equal(t, 200, status)
	status, _ = s.raw(http.MethodGet, s.signed(http.MethodPost, versionESS, "DescribeScalingGroups"), false)
	assert.Equal(t, 400, status)
}

func TestServesAsProxyForAnyHost(t *testing.T) {
	s := start(t)
	proxy, err := url.Parse("http://" + s.Endpoint())
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(proxy)}}
	p := s.signed(http.MethodPost, versionESS, "DescribeScalingGroups")
	resp, err := client.Post("http://ess.ap-southeast-1.aliyuncs.com/?"+p.Encode(), "application/x-www-form-urlencoded", nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, 200, resp.StatusCode)

	resp, err = client.Get("http://ess.ap-southeast-1.aliyuncs.com/_sim/state")
	require.NoError(t, err)
	defer resp.Body.Close()
	assert.Equal(t, 404, resp.StatusCode, "the control panel is not reached through the proxy")
}

func TestParametersAreChecked(t *testing.T) {
	s := start(t)
	many := func(name string, count int) func(url.Values) {
		return func(p url.Values) {
			for i := range count {
				p.Set(name+"."+requestsInteger(i+1), "x")
			}
		}
	}
	for _, test := range []struct {
		name, version, action string
		change                []func(url.Values)
		code                  string
	}{
		{"groups page of 50", versionESS, "DescribeScalingGroups", []func(url.Values){set("PageSize", "50")}, ""},
		{"groups page of 51", versionESS, "DescribeScalingGroups", []func(url.Values){set("PageSize", "51")}, "InvalidParameter"},
		{"groups page 0", versionESS, "DescribeScalingGroups", []func(url.Values){set("PageNumber", "0")}, "InvalidParameter"},
		{"groups without region", versionESS, "DescribeScalingGroups", []func(url.Values){drop("RegionId")}, "MissingRegionId"},
		{"20 group ids", versionESS, "DescribeScalingGroups", []func(url.Values){many("ScalingGroupId", 20)}, ""},
		{"21 group ids", versionESS, "DescribeScalingGroups", []func(url.Values){many("ScalingGroupId", 21)}, "InvalidParameter"},
		{"instances page of 100", versionESS, "DescribeScalingInstances", []func(url.Values){set("PageSize", "100")}, ""},
		{"instances page of 101", versionESS, "DescribeScalingInstances", []func(url.Values){set("PageSize", "101")}, "InvalidParameter"},
		{"21 instance ids", versionESS, "DescribeScalingInstances", []func(url.Values){many("InstanceId", 21)}, "InvalidParameter"},
		{"11 configuration ids", versionESS, "DescribeScalingConfigurations", []func(url.Values){many("ScalingConfigurationId", 11)}, "InvalidParameter"},
		{"21 activity ids", versionESS, "DescribeScalingActivities", []func(url.Values){many("ScalingActivityId", 21)}, "InvalidParameter"},
		{"activities of nothing", versionESS, "DescribeScalingActivities", nil, "MissingScalingGroupId"},
		{"scale without group", versionESS, "ScaleWithAdjustment", nil, "MissingScalingGroupId"},
		{"scale unknown group", versionESS, "ScaleWithAdjustment", []func(url.Values){set("ScalingGroupId", "asg-x")}, "InvalidScalingGroupId.NotFound"},
		{"scale without type", versionESS, "ScaleWithAdjustment", []func(url.Values){set("ScalingGroupId", spotGroup)}, "MissingAdjustmentType"},
		{"scale without value", versionESS, "ScaleWithAdjustment", []func(url.Values){set("ScalingGroupId", spotGroup), set("AdjustmentType", "TotalCapacity")}, "MissingAdjustmentValue"},
		{"scale by 1001", versionESS, "ScaleWithAdjustment", []func(url.Values){set("ScalingGroupId", spotGroup), set("AdjustmentType", "QuantityChangeInCapacity"), set("AdjustmentValue", "1001")}, "InvalidParameter"},
		{"scale by words", versionESS, "ScaleWithAdjustment", []func(url.Values){set("ScalingGroupId", spotGroup), set("AdjustmentType", "QuantityChangeInCapacity"), set("AdjustmentValue", "many")}, "InvalidParameter"},
		{"remove nothing", versionESS, "RemoveInstances", []func(url.Values){set("ScalingGroupId", spotGroup)}, "MissingInstanceId.1"},
		{"remove 21", versionESS, "RemoveInstances", []func(url.Values){set("ScalingGroupId", spotGroup), many("InstanceId", 21)}, "InvalidParameter"},
		{"remove from unknown group", versionESS, "RemoveInstances", []func(url.Values){set("ScalingGroupId", "asg-x"), many("InstanceId", 1)}, "InvalidScalingGroupId.NotFound"},
		{"suspend unknown process", versionESS, "SuspendProcesses", []func(url.Values){set("ScalingGroupId", spotGroup), set("Process.1", "Sleep")}, "InvalidParameter"},
		{"modify unknown group", versionESS, "ModifyScalingGroup", []func(url.Values){set("ScalingGroupId", "asg-x")}, "InvalidScalingGroupId.NotFound"},
		{"modify to min above max", versionESS, "ModifyScalingGroup", []func(url.Values){set("ScalingGroupId", spotGroup), set("MinSize", "30")}, "InvalidParameter.Conflict"},
		{"tags of what", versionESS, "ListTagResources", nil, "MissingResourceType"},
		{"unknown rule", versionESS, "ExecuteScalingRule", []func(url.Values){set("ScalingRuleAri", "ari:x")}, "InvalidScalingRuleId.NotFound"},
		{"ECS page of 101", versionECS, "DescribeInstances", []func(url.Values){set("PageSize", "101")}, "InvalidParameter"},
		{"ECS page of 101 by token", versionECS, "DescribeInstances", []func(url.Values){set("MaxResults", "101")}, "InvalidParameter"},
		{"ECS foreign token", versionECS, "DescribeInstances", []func(url.Values){set("MaxResults", "10"), set("NextToken", "x")}, "InvalidParameter"},
		{"ECS ids that are no JSON", versionECS, "DescribeInstances", []func(url.Values){set("InstanceIds", "i-1,i-2")}, "InvalidInstanceIds.Malformed"},
		{"101 ECS ids", versionECS, "DescribeInstances", []func(url.Values){set("InstanceIds", `["x"`+strings.Repeat(`,"x"`, 100)+`]`)}, "InvalidParameter"},
		{"unknown lock", versionECS, "DescribeInstances", []func(url.Values){set("LockReason", "rust")}, "InvalidParameter"},
		{"11 instance types", versionECS, "DescribeInstanceTypes", []func(url.Values){many("InstanceTypes", 11)}, "InvalidParameter"},
		{"history of nothing", versionECS, "DescribeSpotPriceHistory", nil, "MissingInstanceType"},
		{"history without network", versionECS, "DescribeSpotPriceHistory", []func(url.Values){set("InstanceType", small)}, "MissingNetworkType"},
		{"price of nothing", versionECS, "DescribePrice", nil, "MissingInstanceType"},
		{"stock of nothing", versionECS, "DescribeAvailableResource", nil, "MissingDestinationResource"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, body := s.raw(http.MethodPost, s.signed(http.MethodPost, test.version, test.action, test.change...), false)
			code, _ := body["Code"].(string)
			assert.Equal(t, test.code, code, body["Message"])
		})
	}
}

const versionECS = "2014-05-26"

func requestsInteger(n int) string { return string(requests.NewInteger(n)) }

func TestEveryActionHasItsOwnLimit(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.RateLimits = map[string]int{"DescribeScalingGroups": 2, "*": 0} })
	ask := func() string {
		_, err := s.ess.DescribeScalingGroups(ess.CreateDescribeScalingGroupsRequest())
		return codeOf(t, err)
	}
	assert.Equal(t, []string{"", "", "Throttling.User"}, []string{ask(), ask(), ask()})
	for range 20 {
		_, err := s.ecs.DescribeInstances(ecs.CreateDescribeInstancesRequest())
		require.NoError(t, err, "other actions are not limited here")
	}
	s.pass(30 * time.Second)
	assert.Equal(t, []string{"", "Throttling.User"}, []string{ask(), ask()}, "a limit is per 60 seconds")
}

func TestThrottlingIsHTTP400(t *testing.T) {
	s := start(t, func(w *alisim.World) { w.RateLimits = map[string]int{"*": 1} })
	s.raw(http.MethodPost, s.signed(http.MethodPost, versionESS, "DescribeScalingGroups"), false)
	status, body := s.raw(http.MethodPost, s.signed(http.MethodPost, versionESS, "DescribeScalingGroups"), false)
	assert.Equal(t, 400, status)
	assert.Equal(t, "Throttling.User", body["Code"])
}
