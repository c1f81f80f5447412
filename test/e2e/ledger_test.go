package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
	"gpu-spot-autoscaler/pricing/ledger"
	"gpu-spot-autoscaler/test/rig"
)

// ledgerTolerance is for how long an instance may count that is gone, or not count that is there: the ledger counts every ten seconds, by
// what the last refresh saw.
const ledgerTolerance = 20 * time.Second

func TestTheLedgerAgreesWithTheBillAlsoAfterItsLeaderWasKilled(t *testing.T) {
	rig.Long(t)
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	s.InstallManifest(t, secureInstall)
	address := ownAddress(t)
	port, err := rig.FreePort(t.Context(), address)
	require.NoError(t, err)
	secure := net.JoinHostPort(address, port)
	flags := []string{"--secure-address=" + secure, "--scale-down-unneeded-time=5s", "--scale-down-delay-after-add=5s"}
	autoscaler := s.RunAutoscaler(t, flags...)
	token := "Bearer " + tokenOf(s, rig.Namespace, viewer)
	costs := func(ctx context.Context) (report ledger.Report, err error) {
		code, body, err := httpGet(ctx, s, "https://"+secure+serving.CostsPath, "Authorization", token)
		if err == nil && code == http.StatusOK {
			err = json.Unmarshal([]byte(body), &report)
		}
		return report, err
	}

	pods := gpuPods("train", 2)
	s.Submit(t, pods...)
	s.awaitRunning(pods...)
	s.Cloud.SetPrice(a10, zoneB, 8, 10)
	s.eventually("the jobs have lines", func(ctx context.Context) (bool, error) {
		report, err := costs(ctx)
		return len(report.Jobs) == 2 && report.Jobs[0].Cost > 0, err
	})
	began, err := costs(t.Context())
	require.NoError(t, err)
	autoscaler.Kill()
	next := s.RunAutoscaler(t, flags...)
	s.eventually("the next leader counts on", func(ctx context.Context) (bool, error) {
		report, err := costs(ctx)
		return report.Until.After(began.Until), err
	})
	s.deletePods(pods...)
	s.eventually("the instances are released", func(context.Context) (bool, error) { return len(s.Cloud.Instances()) == 0, nil })
	bill := s.Cloud.Bill()
	released := time.Now()
	var report ledger.Report
	s.eventually("the ledger knows", func(ctx context.Context) (bool, error) {
		report, err = costs(ctx)
		return report.Until.After(released.Add(ledgerTolerance)), err
	})
	assert.Equal(t, began.Since, report.Since)
	assert.Equal(t, "CNY", report.Currency)
	assert.InDelta(t, bill, report.Total.Cost, 2*8*ledgerTolerance.Hours(), "two instances")
	assert.Greater(t, report.Total.OnDemand, report.Total.Cost)
	assert.Len(t, report.Jobs, 2)
	assert.Equal(t, "default", report.Namespaces[0].Namespace)

	code, body, err := httpGet(t.Context(), s, "https://"+secure+serving.CostsPath+"?format=csv", "Authorization", token)
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, code)
	assert.Contains(t, body, "offering,asg-1,"+a10)

	require.NoError(t, next.Stop())
	for _, name := range []string{"ledger", "market"} {
		saved, err := s.Client.CoreV1().ConfigMaps(rig.Namespace).Get(t.Context(), rig.ServiceAccount+"-"+name, metav1.GetOptions{})
		require.NoError(t, err)
		assert.NotEmpty(t, saved.BinaryData)
	}
}
