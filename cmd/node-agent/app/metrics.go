package app

import (
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// metric is one number in Prometheus' text format. Prometheus' client library would make the process a quarter larger.
type metric struct {
	name, kind, help string
	value            atomic.Int64
}

var (
	noticeDeadline = &metric{
		name: "gpu_spot_agent_notice_deadline_timestamp_seconds", kind: "gauge",
		help: "Unix time when this instance is released; 0 while there is no notice.",
	}
	metadataFailures = &metric{
		name: "gpu_spot_agent_metadata_failures_total", kind: "counter",
		help: "Polls of the instance metadata that failed.",
	}
	nodeFailures = &metric{
		name: "gpu_spot_agent_node_failures_total", kind: "counter",
		help: "Requests about the own Node that failed.",
	}
	acknowledged = &metric{
		name: "gpu_spot_agent_acknowledgements_total", kind: "counter",
		help: "Acknowledgements of saved checkpoints that were written on the Node.",
	}
	refused = &metric{
		name: "gpu_spot_agent_refused_acknowledgements_total", kind: "counter",
		help: "Acknowledgements that were not awaited from the address that they came from.",
	}

	allMetrics = []*metric{noticeDeadline, metadataFailures, nodeFailures, acknowledged, refused}
)

func serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	WriteMetrics(w)
}

// WriteMetrics writes all metrics in Prometheus' text format.
func WriteMetrics(w io.Writer) {
	for _, m := range allMetrics {
		fmt.Fprintf(w, "# HELP %[1]s %[2]s\n# TYPE %[1]s %[3]s\n%[1]s %[4]d\n", m.name, m.help, m.kind, m.value.Load())
	}
}

func setNoticeDeadline(deadline time.Time) {
	if deadline.IsZero() {
		noticeDeadline.value.Store(0)
		return
	}
	noticeDeadline.value.Store(deadline.Unix())
}
