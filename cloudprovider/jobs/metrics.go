package jobs

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	jobActions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gpu_spot_job_actions_total",
		Help: "What was asked of job systems, by system, action (warn, shrink, stop, suspend, resume, queue for going back to a queue of Kueue, grow, grow-beyond, note for writing how much of its work is saved, unhold for removing the held label of a job that has ended, has all its workers again, or goes on though it was told to stop, and accept-resumed for doing so for one that somebody else has resumed) and outcome: " +
			"done, unchanged (nothing was to do), busy, unsupported, absent (no such job), timeout, failed.",
	}, []string{"system", "action", "outcome"})
	systemsInstalled = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "gpu_spot_job_system_installed",
		Help: "1 for job systems whose resource is served by the cluster, else 0.",
	}, []string{"system"})
)

// RegisterMetrics registers this package's metrics.
func RegisterMetrics(r prometheus.Registerer) { r.MustRegister(jobActions, systemsInstalled) }

// outcome is the label for how a call ended.
func outcome(changed bool, err error) string {
	var busy *BusyError
	switch {
	case err == nil && changed:
		return "done"
	case err == nil:
		return "unchanged"
	case errors.As(err, &busy):
		return "busy"
	case errors.Is(err, ErrUnsupported):
		return "unsupported"
	case errors.Is(err, ErrNoObject):
		return "absent"
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	}
	return "failed"
}
