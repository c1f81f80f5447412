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
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/cloudprovider/problems"
)

const (
	// statusSuffix follows the name of the Deployment in that of the ConfigMap.
	statusSuffix = "-status"
	// statusKey is that of the ConfigMap's data, as of Cluster Autoscaler's own.
	statusKey = "status"
	// statusPause is how often it is looked whether there is something new, statusAge how old the ConfigMap gets without.
	statusPause, statusAge = 2 * time.Second, 5 * time.Minute
	// mostProblems are told of at once, each in no more than longestText bytes: an object holds 1 MiB.
	mostProblems, longestText = 50, 1000
)

// statusWriter keeps the ConfigMap in which the leader says how it is. Unlike Cluster Autoscaler's it does not grow with the
// number of node groups: it has problems only.
type statusWriter struct {
	client    kubernetes.Interface
	namespace string
	name      string
	identity  string
	board     *problems.Board
	clock     clock.WithTicker
}

// statusReport is what the ConfigMap says, as YAML.
type statusReport struct {
	// Time is when this was written, at most five minutes ago while the leader lives.
	Time   metav1.Time `json:"time"`
	Leader string      `json:"leader"`
	Ready  bool        `json:"ready"`
	// Refreshed and Polled are when the leader first read the pools and asked for notices; missing as long as it has not.
	Refreshed *metav1.Time    `json:"refreshed,omitempty"`
	Polled    *metav1.Time    `json:"polled,omitempty"`
	Problems  []statusProblem `json:"problems"`
	// LeftOut is how many problems there are beside those told.
	LeftOut int `json:"leftOut,omitempty"`
}

type statusProblem struct {
	Source string      `json:"source"`
	Pool   string      `json:"pool,omitempty"`
	Reason string      `json:"reason"`
	Since  metav1.Time `json:"since"`
	Cause  string      `json:"cause"`
	Mend   string      `json:"mend,omitempty"`
}

// run writes what is new until ctx ends. What fails is tried again.
func (s *statusWriter) run(ctx context.Context) {
	ticker := s.clock.NewTicker(statusPause)
	defer ticker.Stop()
	var last string
	var written time.Time
	for {
		now := s.clock.Now()
		if text := s.render(time.Time{}); text != last || now.Sub(written) >= statusAge {
			if err := s.write(ctx, s.render(now)); err == nil {
				last, written = text, now
			} else if ctx.Err() == nil {
				klog.FromContext(ctx).Error(err, "Writing the status failed", "configMap", klog.KRef(s.namespace, s.name))
			}
		}
		select {
		case <-ticker.C():
		case <-ctx.Done():
			return
		}
	}
}

// render is the same for the same time as long as nothing changes.
func (s *statusWriter) render(now time.Time) string {
	report := s.board.Report()
	said := statusReport{Time: metav1.NewTime(now.UTC()), Leader: s.identity, Ready: report.Ready, Problems: []statusProblem{}}
	for source, field := range map[problems.Source]**metav1.Time{problems.Refresh: &said.Refreshed, problems.Poll: &said.Polled} {
		if at, done := report.Firsts[source]; done {
			*field = &metav1.Time{Time: at.UTC()}
		}
	}
	for i, standing := range report.Problems {
		if i == mostProblems {
			said.LeftOut = len(report.Problems) - mostProblems
			break
		}
		said.Problems = append(said.Problems, statusProblem{
			Source: string(standing.Source), Pool: standing.Pool, Reason: standing.Reason, Since: metav1.NewTime(standing.Since.UTC()),
			Cause: cut(standing.Cause), Mend: cut(standing.Mend),
		})
	}
	text, err := yaml.Marshal(said)
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

// write replaces the ConfigMap, or makes it.
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
