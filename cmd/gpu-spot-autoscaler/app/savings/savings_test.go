package savings

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/pricing/ledger"
)

var report = ledger.Report{
	Currency: "CNY", Since: time.Date(2026, 11, 1, 8, 0, 0, 0, time.UTC), Until: time.Date(2026, 11, 3, 8, 0, 0, 0, time.UTC),
	Total: ledger.Amounts{Cost: 66, OnDemand: 200, GPUHours: 30, Reclaiming: 1},
	Offerings: []ledger.OfferingLine{
		{Offering: ledger.Offering{Pool: "asg-1", InstanceType: "ecs.a", Zone: "b", PurchaseOption: "spot"}, Amounts: ledger.Amounts{Cost: 26, OnDemand: 100, GPUHours: 10, Reclaiming: 1}},
		{Offering: ledger.Offering{Pool: "asg-1", InstanceType: "ecs.a", Zone: "c", PurchaseOption: "spot"}, Amounts: ledger.Amounts{Cost: 10, OnDemand: 70, GPUHours: 10}},
		{Offering: ledger.Offering{Pool: "asg-2", InstanceType: "ecs.a", Zone: "b", PurchaseOption: "on-demand"}, Amounts: ledger.Amounts{Cost: 30, OnDemand: 30, GPUHours: 10}},
	},
	Namespaces: []ledger.NamespaceLine{{Namespace: "ml", Amounts: ledger.Amounts{Cost: 50, OnDemand: 150, GPUHours: 20}}},
	Jobs:       []ledger.JobLine{{Job: ledger.Job{Namespace: "ml", System: "pytorchjob", Name: "=train"}, Amounts: ledger.Amounts{Cost: 50, OnDemand: 150, GPUHours: 20}}},
}

func TestSavingsAreWhatOnDemandCostsMoreWithoutWhatReclaimsHaveLost(t *testing.T) {
	for by, want := range map[string]string{
		byPool: `asg-1  20.0       36.00  170.00     2.60  131.40  77 %
asg-2  10.0       30.00  30.00      0.00  0.00    0 %
total  30.0       66.00  200.00     2.60  131.40  66 %
`,
		byNamespace: `ml         20.0       50.00  150.00     0.00  100.00  67 %
total      30.0       66.00  200.00     2.60  131.40  66 %
`,
		byJob: "ml/=train pytorchjob  20.0       50.00  150.00     0.00  100.00  67 %\n",
		byOffering: `asg-1 ecs.a b spot       10.0       26.00  100.00     2.60  71.40   71 %
asg-1 ecs.a c spot       10.0       10.00  70.00      0.00  60.00   86 %
asg-2 ecs.a b on-demand  10.0       30.00  30.00      0.00  0.00    0 %
`,
	} {
		t.Run(by, func(t *testing.T) {
			var out strings.Builder
			require.NoError(t, of(report, by).writeText(&out))
			assert.True(t, strings.HasPrefix(out.String(), "From 2026-11-01 08:00:00 to 2026-11-03 08:00:00 (CNY)\n\n"+strings.ToUpper(by)), out.String())
			assert.Contains(t, out.String(), want)
		})
	}
}

func TestSavingsAreReadByPrograms(t *testing.T) {
	var out strings.Builder
	require.NoError(t, of(report, byJob).writeCSV(&out))
	assert.Equal(t, "job,currency,gpu_hours,paid,on_demand,lost,saved\nml/=train pytorchjob,CNY,20.000000,50.000000,150.000000,0.000000,100.000000\n", out.String())
	out.Reset()
	require.NoError(t, of(report, byPool).writeJSON(&out))
	var read Savings
	require.NoError(t, json.Unmarshal([]byte(out.String()), &read))
	assert.Equal(t, of(report, byPool), read)
}

func TestALedgerThatHasNotBegunSaysSo(t *testing.T) {
	var out strings.Builder
	require.NoError(t, of(ledger.Report{}, byPool).writeText(&out))
	assert.Equal(t, "Nothing is accounted for yet.\n", out.String())
}

func TestUnknownFormsAreRefused(t *testing.T) {
	assert.ErrorContains(t, run(t.Context(), flags{by: "user", output: outputText}, nil), "--by=user: want pool, offering, namespace, job")
	assert.ErrorContains(t, run(t.Context(), flags{by: byPool, output: "yaml"}, nil), "want text, json or csv")
}
