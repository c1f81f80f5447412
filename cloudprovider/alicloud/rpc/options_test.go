package rpc

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestEndpointsAndSchemes(t *testing.T) {
	tests := []struct {
		name          string
		options       Options
		ess, ecs, vpc string
		scheme        string
		err           string
	}{
		{"a region with endpoints of its own", Options{Region: "cn-hangzhou"}, "ess.aliyuncs.com", "ecs-cn-hangzhou.aliyuncs.com", "vpc.aliyuncs.com", "https", ""},
		{"a region the SDK does not know", Options{Region: "cn-new-9"}, "ess.cn-new-9.aliyuncs.com", "ecs.cn-new-9.aliyuncs.com", "vpc.cn-new-9.aliyuncs.com", "https", ""},
		{"overridden, with a port", Options{Region: "cn-hangzhou", Scheme: "http", Endpoints: Endpoints{ESS: "127.0.0.1:1", ECS: "e", VPC: "v"}}, "127.0.0.1:1", "e", "v", "http", ""},
		{"no region", Options{}, "", "", "", "", "no region"},
		{"a region that is none", Options{Region: "cn/x"}, "", "", "", "", "invalid characters"},
		{"a strange scheme", Options{Region: "r", Scheme: "ftp"}, "", "", "", "", `"ftp"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c, err := New(test.options)
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, test.ess, c.options.Endpoints.host(alicloud.ServiceESS))
			assert.Equal(t, test.ecs, c.options.Endpoints.host(alicloud.ServiceECS))
			assert.Equal(t, test.vpc, c.options.Endpoints.host(alicloud.ServiceVPC))
			assert.Equal(t, test.scheme, c.options.Scheme)
			assert.Equal(t, test.options.Region, c.options.Region)
		})
	}
}
