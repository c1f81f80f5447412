package app

import (
	"context"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/alicloud/dryrun"
	"gpu-spot-autoscaler/cloudprovider/problems"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cloudprovider/work"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/serving"
	"gpu-spot-autoscaler/pricing/ledger"
)

const (
	// statusKey is the key in the ConfigMap's data. Cluster Autoscaler's own status has the same.
	statusKey = "status"
	// statusPause is how often the status is compared with what was written last. statusAge is after how long it is written again
	// if it has not changed.
	statusPause, statusAge = 2 * time.Second, 5 * time.Minute
	// mostProblems limits the problems, and longestText their texts in bytes: an object holds 1 MiB.
	mostProblems, longestText = 50, 1000
)

// statusWriter keeps the ConfigMap with the status of the leader up to date. Unlike Cluster Autoscaler's status it contains problems
// only, so it does not grow with the number of node groups.
type statusWriter struct {
	client    kubernetes.Interface
	namespace string
	name      string
	identity  string
	board     *problems.Board
	clock     clock.WithTicker
}

// statusReport is the content of the ConfigMap, as YAML.
type statusReport struct {
	// Time is when the report was written: at most five minutes ago while there is a leader.
	Time   metav1.Time `json:"time"`
	Leader string      `json:"leader"`
	Ready  bool        `json:"ready"`
	// Refreshed is when the leader first read the pools, and Polled when it first polled for notices. Each is missing before.
	Refreshed *metav1.Time    `json:"refreshed,omitempty"`
	Polled    *metav1.Time    `json:"polled,omitempty"`
	Problems  []statusProblem `json:"problems"`
	// LeftOut is the number of further problems.
	LeftOut int `json:"leftOut,omitempty"`
}

type statusProblem struct {
	Source string      `json:"source"`
	Pool   string      `json:"pool,omitempty"`
	Reason string      `json:"reason"`
	Since  metav1.Time `json:"since"`
	Cause  string      `json:"cause"`
	Fix    string      `json:"fix,omitempty"`
}

// run writes the status whenever it has changed, until ctx ends. It retries after failures.
func (s *statusWriter) run(ctx context.Context) {
	var last string
	var written time.Time
	work.Every(ctx, s.clock, statusPause, func() {
		now := s.clock.Now()
		if text := s.render(time.Time{}); text != last || now.Sub(written) >= statusAge {
			if err := s.write(ctx, s.render(now)); err == nil {
				last, written = text, now
			} else if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Cannot write the status", "configMap", klog.KRef(s.namespace, s.name))
			}
		}
	})
}

// render returns the report as YAML. It returns the same text for the same time as long as nothing changes.
func (s *statusWriter) render(now time.Time) string {
	report := s.board.Report()
	written := statusReport{Time: metav1.NewTime(now.UTC()), Leader: s.identity, Ready: report.Ready, Problems: []statusProblem{}}
	for source, field := range map[problems.Source]**metav1.Time{problems.Refresh: &written.Refreshed, problems.Poll: &written.Polled} {
		if at, done := report.Firsts[source]; done {
			*field = &metav1.Time{Time: at.UTC()}
		}
	}
	for i, active := range report.Problems {
		if i == mostProblems {
			written.LeftOut = len(report.Problems) - mostProblems
			break
		}
		written.Problems = append(written.Problems, statusProblem{
			Source: string(active.Source), Pool: active.Pool, Reason: active.Reason, Since: metav1.NewTime(active.Since.UTC()),
			Cause: cut(active.Cause), Fix: cut(active.Fix),
		})
	}
	text, err := yaml.Marshal(written)
	if err != nil {
		return err.Error() // strings and times always marshal
	}
	return string(text)
}

func cut(text string) string {
	if len(text) <= longestText {
		return text
	}
	return strings.ToValidUTF8(text[:longestText], "") + "…"
}

// write updates the ConfigMap, or creates it.
func (s *statusWriter) write(ctx context.Context, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	configMap := &apiv1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: s.name},
		Data:       map[string]string{statusKey: text},
	}
	configMaps := s.client.CoreV1().ConfigMaps(s.namespace)
	_, err := configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = configMaps.Create(ctx, configMap, metav1.CreateOptions{})
	}
	return err
}

// Describe adds to the status what the leader knows.
func (p *parts) Describe(to *status.Status) {
	pools, refreshed := p.provider.Pools()
	to.Pools = pools
	if !refreshed.IsZero() {
		to.Refreshed = ptr.To(refreshed.UTC())
	}
	to.Spend = spend(pools, p.ledger.Report())
	to.Currency = p.prices.Currency()
	p.describePending(to)
	to.Reclaims, to.Jobs = p.reclaimer.Reclaims(), p.reclaimer.JobReclaims()
	if p.dryRun != nil {
		to.DryRun = dryRunStatus(p.dryRun.Decisions())
	}
	for _, active := range p.problems.Report().Problems {
		to.Problems = append(to.Problems, status.Problem{
			Source: string(active.Source), Pool: active.Pool, Reason: active.Reason, Message: active.Text(), Since: active.Since.UTC(),
		})
	}
}

// describePending adds to the status which pods wait, or why that is not known.
func (p *parts) describePending(to *status.Status) {
	if p.explainer == nil {
		to.PendingUnknown = status.PendingUnknownServed
		return
	}
	pending, total, err := p.explainer.Pending()
	if err != nil {
		klog.ErrorS(err, "Cannot tell which pods wait")
		to.PendingUnknown = status.PendingUnknownFailed
		return
	}
	to.Pending, to.PendingTotal = pending, total
}

// explain has pods explained until ctx ends.
func (p *parts) explain(ctx context.Context, explanations *serving.Explanations) {
	if p.explainer == nil {
		explanations.Lead(ctx, serving.WithoutCore{})
		return
	}
	explanations.Lead(ctx, p.explainer)
	p.explainer.Publish(ctx)
}

// dryRunStatus returns what would have been done, as the status has it.
func dryRunStatus(decisions []dryrun.Decision) *status.DryRun {
	result := &status.DryRun{Decisions: []status.Decision{}}
	for _, d := range decisions {
		result.Decisions = append(result.Decisions, status.Decision{
			Time: d.Time.UTC(), Action: d.Action, Pool: d.Pool, Count: d.Count, InstanceType: d.InstanceType, Zone: d.Zone, SpotStrategy: d.SpotStrategy,
			Instances: d.Instances,
		})
	}
	return result
}

// spend returns what the pools cost, nil before anything is accounted for.
func spend(pools []status.Pool, report ledger.Report) *status.Spend {
	if report.Until.IsZero() {
		return nil
	}
	s := &status.Spend{Since: report.Since, Cost: report.Total.Cost, OnDemand: report.Total.OnDemand}
	for i := range pools {
		for _, offering := range pools[i].Offerings {
			s.PerHour += float64(offering.Live) * ptr.Deref(offering.Price, 0)
		}
	}
	return s
}
