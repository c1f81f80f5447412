package rpc

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

func TestARequestWithoutReplyKeepsItsCause(t *testing.T) {
	assert.ErrorIs(t, noReply(alicloud.ServiceESS, "X", context.DeadlineExceeded), context.DeadlineExceeded)
}

func TestAHostThatDoesNotExistIsAWrongRegion(t *testing.T) {
	err := noReply(alicloud.ServiceESS, "X", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "ess.cn-nowhere.aliyuncs.com", IsNotFound: true}})
	assert.Equal(t, alicloud.WrongRegion, alicloud.Diagnose(err).Reason)
	assert.Equal(t, alicloud.Unreachable, alicloud.Diagnose(noReply(alicloud.ServiceESS, "X", errors.New("connection refused"))).Reason)
}
