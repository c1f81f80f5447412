package app

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cloudprovider/ess"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/supervisor"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/processors/customresources"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
	"gpu-spot-autoscaler/cloudprovider/processors/scaledown"
	"gpu-spot-autoscaler/cloudprovider/processors/scaleup"
	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
	"gpu-spot-autoscaler/cloudprovider/processors/templates"
	"gpu-spot-autoscaler/cloudprovider/processors/trigger"
	"gpu-spot-autoscaler/cloudprovider/reclaim"
	"gpu-spot-autoscaler/pricing"
	"gpu-spot-autoscaler/pricing/ledger"
)

// names collects the names of what is registered.
type names struct {
	*prometheus.Registry
	found []string
}

func (n *names) MustRegister(collectors ...prometheus.Collector) {
	for _, collector := range collectors {
		descriptions := make(chan *prometheus.Desc, 100)
		collector.Describe(descriptions)
		close(descriptions)
		for description := range descriptions {
			n.found = append(n.found, regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(description.String())[1])
		}
	}
}

func TestOperatorsCanReadUpWhyCallsFailInTheWordsOfTheEvents(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## What stands in the way\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := map[alicloud.Reason]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| ([a-z_]+) (\|.*)$`).FindAllStringSubmatch(section, -1) {
		rows[alicloud.Reason(row[1])] = row[2]
	}
	delete(rows, "reason") // the head
	for reason, remedy := range alicloud.Remedies {
		if row := rows[reason]; !strings.Contains(row, "| "+remedy.Cause+" |") || !strings.Contains(row, "| "+remedy.Fix) {
			t.Errorf("docs/operations.md does not say of %s: %s. %s", reason, remedy.Cause, remedy.Fix)
		}
		delete(rows, reason)
	}
	for reason := range rows {
		t.Errorf("docs/operations.md explains the reason %s, which does not exist", reason)
	}
}

func TestOperatorsCanReadUpEveryMetric(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics := &names{Registry: prometheus.NewRegistry()}
	for _, register := range []func(prometheus.Registerer){
		rpc.RegisterMetrics, problems.RegisterMetrics, ess.RegisterMetrics, customresources.RegisterMetrics, templates.RegisterMetrics, podlist.RegisterMetrics, scaleup.RegisterMetrics, scaledown.RegisterMetrics, spotfirst.RegisterMetrics, trigger.RegisterMetrics,
		pricing.RegisterMetrics, ledger.RegisterMetrics, jobs.RegisterMetrics, supervisor.RegisterMetrics, reclaim.RegisterMetrics,
	} {
		register(metrics)
	}
	if len(metrics.found) < 20 {
		t.Fatalf("found only %v", metrics.found)
	}
	for _, name := range metrics.found {
		if !strings.Contains(string(text), "`"+name) {
			t.Errorf("docs/operations.md does not explain %s", name)
		}
	}
	for _, name := range regexp.MustCompile("`(gpu_spot_[a-z_]+)").FindAllStringSubmatch(string(text), -1) {
		known := false
		for _, found := range metrics.found {
			known = known || found == name[1]
		}
		if !known {
			t.Errorf("docs/operations.md explains %s, which does not exist", name[1])
		}
	}
}
