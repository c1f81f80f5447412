package client

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

func TestHowFarTheClockIsOffIsTold(t *testing.T) {
	w := newWire(t, func(url.Values) answer {
		refusal := refuse(http.StatusBadRequest, "InvalidTimeStamp.Expired")
		refusal.date = time.Now().Add(20 * time.Minute)
		return refusal
	})
	_, err := w.client().ScalingGroups(t.Context(), alicloud.GroupFilter{})
	require.Error(t, err)
	assert.Contains(t, alicloud.Diagnose(err).Cause, "the clock of the node is wrong by 20m0s")
}

func TestCredentialsOfADirectoryAreReadAgain(t *testing.T) {
	noCredentials(t)
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", "of-the-environment")
	dir := t.TempDir()
	write := func(name, content string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	w := newWire(t, func(url.Values) answer { return ok(object{}) })
	client := w.client(func(o *rpc.Options) { o.Credentials, o.CredentialsDir = nil, dir })

	_, err := client.Scale(t.Context(), buy("t"))
	assert.Equal(t, alicloud.NoCredentials, alicloud.Diagnose(err).Reason)
	assert.Contains(t, alicloud.Diagnose(err).Cause, filepath.Join(dir, "ALIBABA_CLOUD_ACCESS_KEY_ID"))
	write("ALIBABA_CLOUD_ACCESS_KEY_ID", testKey+"\n")
	write("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "")
	_, err = client.Scale(t.Context(), buy("t"))
	assert.Contains(t, alicloud.Diagnose(err).Cause, "ALIBABA_CLOUD_ACCESS_KEY_SECRET is empty")
	write("ALIBABA_CLOUD_ACCESS_KEY_SECRET", testSecret+"\n")
	_, err = client.Scale(t.Context(), buy("t"))
	require.NoError(t, err, "fixed while it runs")
	assert.Equal(t, testKey, w.seen("ScaleWithAdjustment")[0].Get("AccessKeyId"))
	assert.Empty(t, w.seen("ScaleWithAdjustment")[0].Get("SecurityToken"))
}
