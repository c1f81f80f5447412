package client

import (
	"fmt"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	ecsapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// fullConfiguration has all that ESS 2014-08-28 says about what a scaling configuration launches.
const fullConfiguration = `{"ScalingConfigurationId":"asc-1","InstanceType":"ecs.a","ImageId":"m-1","ImageFamily":"f",
"SecurityGroupId":"sg-0","SecurityGroupIds":{"SecurityGroupId":["sg-1","sg-2"]},"UserData":"am9pbg==","RamRoleName":"role","KeyPairName":"key",
"PasswordInherit":true,"PasswordSetted":true,"InstanceName":"node","HostName":"host","InstanceDescription":"text","ResourceGroupId":"rg-1",
"SecurityEnhancementStrategy":"Active","CreditSpecification":"Standard","HttpEndpoint":"enabled","HttpTokens":"required",
"SecurityOptions":{"ConfidentialComputingMode":"Enclave"},"ImageOptions.LoginAsNonRoot":true,
"InternetChargeType":"PayByTraffic","InternetMaxBandwidthOut":10,"InternetMaxBandwidthIn":20,"Ipv6AddressCount":1,
"IoOptimized":"optimized","DeploymentSetId":"ds-1","HpcClusterId":"hpc-1","Tenancy":"default","Affinity":"default",
"SchedulerOptions":{"ManagedPrivateSpaceId":"ps-1"},"StorageSetId":"ss-1","StorageSetPartitionNumber":2,
"PrivatePoolOptions.Id":"eap-1","PrivatePoolOptions.MatchCriteria":"Open",
"SystemDiskCategory":"cloud_essd","SystemDiskCategories":{"SystemDiskCategory":["cloud_auto","cloud_essd"]},"SystemDiskSize":120,
"SystemDiskPerformanceLevel":"PL1","SystemDiskName":"root","SystemDiskDescription":"text","SystemDiskAutoSnapshotPolicyId":"sp-1",
"SystemDisk.Encrypted":true,"SystemDisk.KMSKeyId":"kms-1","SystemDisk.EncryptAlgorithm":"AES-256","SystemDisk.ProvisionedIops":100,"SystemDisk.BurstingEnabled":true,
"DataDisks":{"DataDisk":[{"Category":"cloud_essd","Size":200,"SnapshotId":"s-1","PerformanceLevel":"PL0","Device":"/dev/xvdb","DiskName":"data",
"Description":"text","AutoSnapshotPolicyId":"sp-1","Encrypted":"true","KMSKeyId":"kms-1","ProvisionedIops":50,"BurstingEnabled":true,"DeleteWithInstance":true},
{"Categories":{"Category":["cloud_auto"]},"Size":40}]}}`

func launchSettingsOf(t *testing.T, configuration string) alicloud.LaunchSettings {
	t.Helper()
	w := newWire(t, func(url.Values) answer {
		return raw(`{"TotalCount":1,"ScalingConfigurations":{"ScalingConfiguration":[` + configuration + `]}}`)
	})
	got, err := w.client().ScalingConfigurations(t.Context(), []string{"asc-1"})
	require.NoError(t, err)
	require.Len(t, got, 1)
	return got[0].Launch
}

func TestLaunchSettingsAreThoseOfTheScalingConfiguration(t *testing.T) {
	settings := launchSettingsOf(t, fullConfiguration)
	assert.Empty(t, settings.Unsupported)
	for name, value := range map[string]string{
		"ImageId": "m-1", "SecurityGroupIds.2": "sg-2", "UserData": "am9pbg==", "RamRoleName": "role", "KeyPairName": "key",
		"SystemDisk.Category": "cloud_auto", "SystemDisk.Size": "120", "SystemDisk.Encrypted": "true",
		"DataDisk.1.Size": "200", "DataDisk.1.DeleteWithInstance": "true", "DataDisk.2.Category": "cloud_auto", "DataDisk.2.DeleteWithInstance": "false",
		"HttpTokens": "required", "SecurityOptions.ConfidentialComputingMode": "Enclave", "DeploymentSetId": "ds-1",
	} {
		assert.Equal(t, value, settings.Parameters[name], name)
	}
	assert.NotContains(t, settings.Parameters, "SecurityGroupId", "RunInstances takes one of the two")
	assert.NotContains(t, settings.Parameters, "ImageFamily", "RunInstances takes one of the two")
	for _, text := range []string{fmt.Sprint(settings), fmt.Sprintf("%+v", settings), fmt.Sprintf("%#v", settings)} {
		assert.NotContains(t, text, "am9pbg", "user data holds the token with which a node joins")
	}
}

// ECS ignores a parameter whose name it does not know.
func TestRunInstancesIsSentParametersThatTheSDKKnows(t *testing.T) {
	known := map[string]bool{}
	addNames(known, "", reflect.TypeFor[ecsapi.RunInstancesRequest]())
	number := regexp.MustCompile(`\.\d+`)
	request := launchRequest()
	request.Settings = launchSettingsOf(t, fullConfiguration)
	request.SpotStrategy, request.SpotPriceLimit = alicloud.SpotWithPriceLimit, 1.5
	for name := range launchParameters(request) {
		assert.True(t, known[number.ReplaceAllString(name, "")], name)
	}
}

// addNames adds the names of the parameters, without their numbers.
func addNames(known map[string]bool, prefix string, of reflect.Type) {
	for n := range of.NumField() {
		field := of.Field(n)
		name := field.Tag.Get("name")
		if name == "" {
			continue
		}
		known[prefix+name] = true
		inner := field.Type
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct {
			addNames(known, prefix+name+".", inner)
		}
	}
}

func TestSettingsThatRunInstancesCannotFollowAreNamed(t *testing.T) {
	for configuration, wanted := range map[string]string{
		`{"ImageId":"m-1","PasswordSetted":true}`:                                                 "a password",
		`{"ImageId":"m-1","DeletionProtection":true}`:                                             "DeletionProtection",
		`{"ImageId":"m-1","NetworkInterfaces":{"NetworkInterface":[{"InstanceType":"Primary"}]}}`: "NetworkInterfaces",
		`{"ImageId":"m-1","ResourcePoolOptions":{"Strategy":"PrivatePoolFirst"}}`:                 "ResourcePoolOptions",
		`{"ImageId":"m-1","DedicatedHostId":"dh-1"}`:                                              "a dedicated host",
		`{"ImageId":"m-1","DedicatedHostClusterId":"dc-1"}`:                                       "a dedicated host",
		`{"ImageId":"m-1","Tenancy":"host"}`:                                                      "a dedicated host",
		`{"InstanceType":"ecs.a"}`:                                                                "no image",
	} {
		unsupported := launchSettingsOf(t, configuration).Unsupported
		require.Len(t, unsupported, 1, configuration)
		assert.Contains(t, unsupported[0], wanted)
	}
}

func launchRequest() alicloud.LaunchRequest {
	return alicloud.LaunchRequest{
		Settings: alicloud.LaunchSettings{Parameters: map[string]string{"ImageId": "m-1", "UserData": "am9pbg=="}}, Amount: 8, MinAmount: 8,
		ClientToken: "tok", InstanceType: "ecs.a", ZoneID: "z", VSwitchID: "vsw-1", SpotStrategy: alicloud.SpotAsPriceGo, Tags: map[string]string{"a": "1", "b": "2"},
	}
}

func TestLaunchSendsEverythingInTheBody(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return ok(object{"InstanceIdSets": object{"InstanceIdSet": []string{"i-1", "i-2"}}})
	})
	ids, err := w.client().Launch(t.Context(), launchRequest())
	require.NoError(t, err)
	assert.Equal(t, []string{"i-1", "i-2"}, ids)
	sent := w.seen("RunInstances")[0]
	for name, value := range map[string]string{
		"Amount": "8", "MinAmount": "8", "ClientToken": "tok", "InstanceType": "ecs.a", "ZoneId": "z", "VSwitchId": "vsw-1", "ImageId": "m-1",
		"UserData": "am9pbg==", "SpotStrategy": "SpotAsPriceGo", "InstanceChargeType": "PostPaid", "SpotInterruptionBehavior": "Terminate",
		"Tag.1.Key": "a", "Tag.1.Value": "1", "Tag.2.Key": "b", "Tag.2.Value": "2", "Version": "2014-05-26",
	} {
		assert.Equal(t, value, sent.Get(name), name)
	}
	assert.Empty(t, sent.Get("SpotPriceLimit"))
	assert.NotContains(t, strings.Join(w.urls, "\n"), "am9pbg", "errors of the transport quote URLs")
}

func TestLaunchRefusesWhatECSWouldNotTake(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return ok(object{}) })
	for name, change := range map[string]func(*alicloud.LaunchRequest){
		"no instance":         func(r *alicloud.LaunchRequest) { r.Amount = 0 },
		"too many instances":  func(r *alicloud.LaunchRequest) { r.Amount = 101 },
		"more than there are": func(r *alicloud.LaunchRequest) { r.MinAmount = 9 },
		"no token":            func(r *alicloud.LaunchRequest) { r.ClientToken = "" },
		"too many tags": func(r *alicloud.LaunchRequest) {
			for n := range 20 {
				r.Tags[fmt.Sprint("tag-", n)] = "x"
			}
		},
	} {
		request := launchRequest()
		change(&request)
		_, err := w.client().Launch(t.Context(), request)
		assert.Equal(t, alicloud.CodeInvalidRequest, alicloud.CodeOf(err), name)
	}
	assert.Empty(t, w.seen("RunInstances"))
}

func TestLaunchedInstancesAreThoseWithTheTagWhateverECSLists(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		return raw(`{"Instances":{"Instance":[
		{"InstanceId":"i-1","Status":"Running","Tags":{"Tag":[{"TagKey":"k","TagValue":"v"}]}},
		{"InstanceId":"i-2","Status":"Running","Tags":{"Tag":[{"TagKey":"k","TagValue":"other"}]}},
		{"InstanceId":"i-3","Status":"Running"}]}}`)
	})
	listed, err := w.client().LaunchedInstances(t.Context(), "k", "v")
	require.NoError(t, err)
	require.Len(t, listed, 1)
	assert.Equal(t, "i-1", listed[0].ID)
	assert.Equal(t, []string{"k", "v"}, []string{w.seen("DescribeInstances")[0].Get("Tag.1.Key"), w.seen("DescribeInstances")[0].Get("Tag.1.Value")})
}

func TestEmptyListOfLaunchedInstancesIsBelievedOnlyWithThePermission(t *testing.T) {
	for name, test := range map[string]struct {
		dryRun answer
		code   string
	}{
		"it is there":    {dryRun: refuse(400, "DryRunOperation")},
		"it is missing":  {dryRun: refuse(403, "Forbidden.RAM"), code: "Forbidden.RAM"},
		"it was ignored": {dryRun: raw(`{"Instances":{"Instance":[]}}`)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t, func(q url.Values) answer {
				if q.Get("DryRun") == "true" {
					return test.dryRun
				}
				return raw(`{"Instances":{"Instance":[]}}`)
			})
			listed, err := w.client().LaunchedInstances(t.Context(), "k", "v")
			assert.Empty(t, listed)
			assert.Equal(t, test.code, alicloud.CodeOf(err))
		})
	}
}

func TestAttachAndDelete(t *testing.T) {
	w := newWire(t, func(url.Values) answer { return ok(object{"ScalingActivityId": "asa-1"}) })
	id, err := w.client().Attach(t.Context(), alicloud.AttachRequest{ScalingGroupID: "asg-1", InstanceIDs: []string{"i-1", "i-2"}, ClientToken: "tok"})
	require.NoError(t, err)
	assert.Equal(t, "asa-1", id)
	sent := w.seen("AttachInstances")[0]
	assert.Equal(t, []string{"true", "true", "i-2", "tok"}, []string{sent.Get("Entrusted"), sent.Get("IgnoreInvalidInstance"), sent.Get("InstanceId.2"), sent.Get("ClientToken")})

	require.NoError(t, w.client().Delete(t.Context(), []string{"i-1"}, "tok"))
	sent = w.seen("DeleteInstances")[0]
	assert.Equal(t, []string{"true", "i-1", "tok"}, []string{sent.Get("Force"), sent.Get("InstanceId.1"), sent.Get("ClientToken")})

	_, err = w.client().Attach(t.Context(), alicloud.AttachRequest{ScalingGroupID: "asg-1", InstanceIDs: strings.Split(strings.Repeat("i,", 20)+"i", ","), ClientToken: "tok"})
	assert.Equal(t, alicloud.CodeInvalidRequest, alicloud.CodeOf(err))
	assert.Equal(t, alicloud.CodeInvalidRequest, alicloud.CodeOf(w.client().Delete(t.Context(), nil, "tok")))
}
