package client

import (
	"cmp"
	"fmt"
	"strconv"

	essapi "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// parameters are those of RunInstances. Empty values and zeros are left out, as they are in a scaling configuration that does not
// set them: ESS creates such instances with the defaults of ECS.
type parameters map[string]string

func (p parameters) text(name, value string) {
	if value != "" {
		p[name] = value
	}
}

func (p parameters) number(name string, value int64) {
	if value != 0 {
		p[name] = strconv.FormatInt(value, 10)
	}
}

func (p parameters) flag(name string, value bool) {
	if value {
		p[name] = "true"
	}
}

func (p parameters) list(name string, values []string) {
	for n, value := range values {
		p[fmt.Sprintf("%s.%d", name, n+1)] = value
	}
}

// launchSettings returns the settings of a scaling configuration as RunInstances takes them. Type, zone, purchase option and tags
// are not among them: those are of one purchase.
func launchSettings(g *essapi.ScalingConfigurationInDescribeScalingConfigurations) alicloud.LaunchSettings {
	p := parameters{}
	if g.ImageId != "" {
		p["ImageId"] = g.ImageId
	} else {
		p.text("ImageFamily", g.ImageFamily)
	}
	if len(g.SecurityGroupIds.SecurityGroupId) > 0 {
		p.list("SecurityGroupIds", g.SecurityGroupIds.SecurityGroupId)
	} else {
		p.text("SecurityGroupId", g.SecurityGroupId)
	}
	addMachine(p, g)
	addNetwork(p, g)
	addPlacement(p, g)
	addSystemDisk(p, g)
	for n := range g.DataDisks.DataDisk {
		addDataDisk(p, fmt.Sprintf("DataDisk.%d.", n+1), &g.DataDisks.DataDisk[n])
	}
	return alicloud.LaunchSettings{Parameters: p, Unsupported: unsupported(g)}
}

func addMachine(p parameters, g *essapi.ScalingConfigurationInDescribeScalingConfigurations) {
	p.text("UserData", g.UserData) // base64 in both: pages of CreateScalingConfiguration and of RunInstances
	p.text("RamRoleName", g.RamRoleName)
	p.text("KeyPairName", g.KeyPairName)
	p.flag("PasswordInherit", g.PasswordInherit)
	p.text("InstanceName", g.InstanceName)
	p.text("HostName", g.HostName)
	p.text("Description", g.InstanceDescription)
	p.text("ResourceGroupId", g.ResourceGroupId)
	p.text("SecurityEnhancementStrategy", g.SecurityEnhancementStrategy)
	p.text("CreditSpecification", g.CreditSpecification)
	p.text("HttpEndpoint", g.HttpEndpoint)
	p.text("HttpTokens", g.HttpTokens)
	p.text("SecurityOptions.ConfidentialComputingMode", g.SecurityOptions.ConfidentialComputingMode)
	p.flag("ImageOptions.LoginAsNonRoot", g.ImageOptionsLoginAsNonRoot)
}

func addNetwork(p parameters, g *essapi.ScalingConfigurationInDescribeScalingConfigurations) {
	p.text("InternetChargeType", g.InternetChargeType)
	p.number("InternetMaxBandwidthOut", int64(g.InternetMaxBandwidthOut))
	if g.InternetMaxBandwidthOut > 0 {
		p.number("InternetMaxBandwidthIn", int64(g.InternetMaxBandwidthIn))
	}
	p.number("Ipv6AddressCount", int64(g.Ipv6AddressCount))
}

func addPlacement(p parameters, g *essapi.ScalingConfigurationInDescribeScalingConfigurations) {
	p.text("IoOptimized", g.IoOptimized)
	p.text("DeploymentSetId", g.DeploymentSetId)
	p.text("HpcClusterId", g.HpcClusterId)
	p.text("Tenancy", g.Tenancy)
	p.text("Affinity", g.Affinity)
	p.text("SchedulerOptions.ManagedPrivateSpaceId", g.SchedulerOptions.ManagedPrivateSpaceId)
	p.text("StorageSetId", g.StorageSetId)
	p.number("StorageSetPartitionNumber", int64(g.StorageSetPartitionNumber))
	p.text("PrivatePoolOptions.Id", g.PrivatePoolOptionsId)
	p.text("PrivatePoolOptions.MatchCriteria", g.PrivatePoolOptionsMatchCriteria)
}

func addSystemDisk(p parameters, g *essapi.ScalingConfigurationInDescribeScalingConfigurations) {
	p.text("SystemDisk.Category", cmp.Or(firstOf(g.SystemDiskCategories.SystemDiskCategory), g.SystemDiskCategory))
	p.number("SystemDisk.Size", int64(g.SystemDiskSize))
	p.text("SystemDisk.PerformanceLevel", g.SystemDiskPerformanceLevel)
	p.text("SystemDisk.DiskName", g.SystemDiskName)
	p.text("SystemDisk.Description", g.SystemDiskDescription)
	p.text("SystemDisk.AutoSnapshotPolicyId", g.SystemDiskAutoSnapshotPolicyId)
	p.flag("SystemDisk.Encrypted", g.SystemDiskEncrypted)
	p.text("SystemDisk.KMSKeyId", g.SystemDiskKMSKeyId)
	p.text("SystemDisk.EncryptAlgorithm", g.SystemDiskEncryptAlgorithm)
	p.number("SystemDisk.ProvisionedIops", g.SystemDiskProvisionedIops)
	p.flag("SystemDisk.BurstingEnabled", g.SystemDiskBurstingEnabled)
}

func addDataDisk(p parameters, prefix string, disk *essapi.DataDisk) {
	p.text(prefix+"Category", cmp.Or(firstOf(disk.Categories.Category), disk.Category))
	p.number(prefix+"Size", int64(disk.Size))
	p.text(prefix+"SnapshotId", disk.SnapshotId)
	p.text(prefix+"PerformanceLevel", disk.PerformanceLevel)
	p.text(prefix+"Device", disk.Device)
	p.text(prefix+"DiskName", disk.DiskName)
	p.text(prefix+"Description", disk.Description)
	p.text(prefix+"AutoSnapshotPolicyId", disk.AutoSnapshotPolicyId)
	p.text(prefix+"Encrypted", disk.Encrypted)
	p.text(prefix+"KMSKeyId", disk.KMSKeyId)
	p.number(prefix+"ProvisionedIops", disk.ProvisionedIops)
	p.flag(prefix+"BurstingEnabled", disk.BurstingEnabled)
	p[prefix+"DeleteWithInstance"] = strconv.FormatBool(disk.DeleteWithInstance)
}

// firstOf returns the first of the categories of a disk, which ESS tries one after the other.
func firstOf(categories []string) string {
	if len(categories) == 0 {
		return ""
	}
	return categories[0]
}

// unsupported names the settings without which an instance would not be like those of the scaling group.
func unsupported(g *essapi.ScalingConfigurationInDescribeScalingConfigurations) []string {
	var names []string
	for _, setting := range []struct {
		name string
		set  bool
	}{
		{"a password, which cannot be read", g.PasswordSetted && !g.PasswordInherit},
		{"DeletionProtection, with which no instance could be given back", g.DeletionProtection},
		// "After DedicatedHostId is specified, SpotStrategy and SpotPriceLimit are ignored": page of RunInstances.
		{"a dedicated host, on which RunInstances buys no spot instance", g.DedicatedHostId != "" || g.DedicatedHostClusterId != "" || g.Tenancy == "host"},
		{"NetworkInterfaces", len(g.NetworkInterfaces.NetworkInterface) > 0},
		{"ResourcePoolOptions", g.ResourcePoolOptions.Strategy != "" && g.ResourcePoolOptions.Strategy != "None"},
		{"no image", g.ImageId == "" && g.ImageFamily == ""},
	} {
		if setting.set {
			names = append(names, setting.name)
		}
	}
	return names
}
