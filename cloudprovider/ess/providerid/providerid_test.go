package providerid

import (
	"errors"
	"testing"
)

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		providerID, region, instanceID string
		bad                            bool
	}{
		"as ACK writes it":              {providerID: "cn-hangzhou.i-bp1abc", region: "cn-hangzhou", instanceID: "i-bp1abc"},
		"with the scheme":               {providerID: "alicloud://cn-hangzhou.i-bp1abc", region: "cn-hangzhou", instanceID: "i-bp1abc"},
		"a region with a number":        {providerID: "ap-southeast-1.i-t4n0", region: "ap-southeast-1", instanceID: "i-t4n0"},
		"none":                          {bad: true},
		"only the scheme":               {providerID: "alicloud://", bad: true},
		"another cloud":                 {providerID: "aws:///us-east-1a/i-0abc", bad: true},
		"another cloud behind our own":  {providerID: "alicloud://aws://cn-hangzhou.i-bp1abc", bad: true},
		"a virtual node":                {providerID: "cn-hangzhou.virtual-kubelet-cn-hangzhou-h", bad: true},
		"an instance without region":    {providerID: "i-bp1abc", bad: true},
		"a region without instance":     {providerID: "cn-hangzhou.", bad: true},
		"an empty region":               {providerID: ".i-bp1abc", bad: true},
		"something behind the instance": {providerID: "cn-hangzhou.i-bp1abc.x", bad: true},
		"white space":                   {providerID: " cn-hangzhou.i-bp1abc", bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			region, instanceID, err := Parse(test.providerID)
			if region != test.region || instanceID != test.instanceID {
				t.Errorf("got %q and %q, want %q and %q", region, instanceID, test.region, test.instanceID)
			}
			var typed *Error
			if errors.As(err, &typed) != test.bad {
				t.Fatalf("error %v, wanted one: %v", err, test.bad)
			}
			if typed != nil && typed.ProviderID != test.providerID {
				t.Errorf("the error names %q", typed.ProviderID)
			}
		})
	}
}

func TestProviderIDIsReadBack(t *testing.T) {
	region, instanceID, err := Parse(Format("cn-beijing", "i-2ze"))
	if err != nil || region != "cn-beijing" || instanceID != "i-2ze" {
		t.Errorf("got %q, %q, %v", region, instanceID, err)
	}
}
