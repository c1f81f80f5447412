package options

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// CloudOptions are how Alibaba Cloud is reached.
type CloudOptions struct {
	Region      string
	CloudScheme string
	Endpoints   rpc.Endpoints
	// CredentialsDir is the directory with the access key. If it is "", the credentials come from the environment.
	CredentialsDir string
}

// AddFlags declares the flags.
func (o *CloudOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Region, "region", os.Getenv("ALIBABA_CLOUD_REGION_ID"),
		"Region of the scaling groups, such as cn-hangzhou. Required. Default: $ALIBABA_CLOUD_REGION_ID.")
	fs.StringVar(&o.CloudScheme, "cloud-scheme", "https", "How to speak to Alibaba Cloud: https or http.")
	fs.StringVar(&o.CredentialsDir, "credentials-dir", "",
		"Directory with the files ALIBABA_CLOUD_ACCESS_KEY_ID, ALIBABA_CLOUD_ACCESS_KEY_SECRET and, for temporary keys, ALIBABA_CLOUD_SECURITY_TOKEN, such as a mounted Secret. They are read every 30 s. Default: credentials come from the environment.")
	fs.StringVar(&o.Endpoints.ESS, "ess-endpoint", "", "Host and port of Auto Scaling (ESS). Default: Alibaba Cloud's of the region.")
	fs.StringVar(&o.Endpoints.ECS, "ecs-endpoint", "", "Host and port of ECS. Default: Alibaba Cloud's of the region.")
	fs.StringVar(&o.Endpoints.VPC, "vpc-endpoint", "", "Host and port of VPC. Default: Alibaba Cloud's of the region.")
	fs.StringVar(&o.Endpoints.STS, "sts-endpoint", "", "Host and port of STS, for RRSA credentials; always https. Default: Alibaba Cloud's of the region.")
}

// Validate returns an error for every flag that is missing or wrong.
func (o *CloudOptions) Validate() (problems []error) {
	if o.Region == "" {
		problems = append(problems, fmt.Errorf("--region is required"))
	}
	if o.CloudScheme != "http" && o.CloudScheme != "https" {
		problems = append(problems, fmt.Errorf("--cloud-scheme=%s is neither http nor https", o.CloudScheme))
	}
	return problems
}
