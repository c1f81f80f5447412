package main

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// report is what the demo leaves behind: report.json, and the data behind report.html.
type report struct {
	Events []*event `json:"events"`
	// Began is the moment that samples count from.
	Began     time.Time         `json:"began"`
	Speed     float64           `json:"speed"`
	Summary   summary           `json:"summary"`
	Jobs      []*jobRecord      `json:"jobs"`
	Instances []*instanceRecord `json:"instances"`
	Samples   []sample          `json:"samples"`
	// Requests counts the calls to the cloud by action.
	Requests map[string]int `json:"requests"`
	// Failure is why the demo failed; empty where it did not.
	Failure string `json:"failure,omitempty"`
}

// summary are the figures at the head. Durations are in seconds, money is in CNY; what did not happen is 0.
type summary struct {
	Seconds     float64 `json:"seconds"`
	MarketHours float64 `json:"market_hours"`
	// PodToPurchase is the median time from a job's first pending pod to its first accepted purchase, PodToRunning to
	// the running of the whole job.
	PodToPurchase float64 `json:"pod_to_purchase_s"`
	PodToRunning  float64 `json:"pod_to_running_s"`
	// NoticeToTaint, NoticeToCheckpoint and NoticeToEmpty are the longest; NoticeToWhole is how long the job was not whole.
	NoticeToTaint      float64 `json:"notice_to_taint_s"`
	NoticeToCheckpoint float64 `json:"notice_to_checkpoint_s"`
	NoticeToEmpty      float64 `json:"notice_to_empty_s"`
	NoticeToWhole      float64 `json:"notice_to_whole_s"`
	// IdleToRemoval is the median.
	IdleToRemoval float64 `json:"idle_to_removal_s"`
	Instances     int     `json:"instances"`
	Reclaimed     int     `json:"reclaimed"`
	GPUHours      float64 `json:"gpu_hours"`
	Spot          float64 `json:"spot_cny"`
	OnDemand      float64 `json:"on_demand_cny"`
	// Saved is a fraction of OnDemand.
	Saved float64 `json:"saved"`
	Calls int     `json:"cloud_calls"`
}

func newReport(c *timeline, l *ledger, requests map[string]int, failed error) *report {
	r := &report{
		Events: c.events, Began: l.began, Speed: l.speed, Jobs: c.courses, Instances: c.ordered, Samples: l.samples, Requests: requests,
	}
	slices.SortStableFunc(r.Events, func(a, b *event) int { return a.Time.Compare(b.Time) })
	if failed != nil {
		r.Failure = failed.Error()
	}
	r.Summary = summarise(r, l)
	return r
}

func summarise(r *report, l *ledger) summary {
	s := summary{
		Seconds: l.last().At, MarketHours: l.last().Market,
		Instances: len(r.Instances), GPUHours: l.gpuHours, Spot: l.spot, OnDemand: l.onDemand,
	}
	if l.onDemand > 0 {
		s.Saved = 1 - l.spot/l.onDemand
	}
	for calls := range maps.Values(r.Requests) {
		s.Calls += calls
	}
	var purchases, runs, idle []float64
	for _, job := range r.Jobs {
		began := first(r.Events, podsPending, job.Name)
		if bought := first(r.Events, scaleUp, job.Name); began != nil && bought != nil {
			purchases = append(purchases, max(0, bought.Time.Sub(pendingSince(job, began.Time)).Seconds()))
		}
		if whole := job.wholeAt(); began != nil && !whole.IsZero() {
			runs = append(runs, whole.Sub(pendingSince(job, began.Time)).Seconds())
		}
	}
	for _, l := range r.Instances {
		s.addLife(l)
		if n := len(l.Work); n > 0 && !l.Removed.IsZero() && !l.Work[n-1].To.IsZero() {
			idle = append(idle, l.Removed.Sub(l.Work[n-1].To).Seconds())
		}
	}
	s.NoticeToWhole = noticeToWhole(r.Events)
	s.PodToPurchase, s.PodToRunning, s.IdleToRemoval = median(purchases), median(runs), median(idle)
	return s
}

func (s *summary) addLife(l *instanceRecord) {
	if l.Notice.IsZero() {
		return
	}
	s.Reclaimed++
	if !l.Tainted.IsZero() {
		s.NoticeToTaint = max(s.NoticeToTaint, l.Tainted.Sub(l.Notice).Seconds())
	}
	if !l.Checkpointed.IsZero() {
		s.NoticeToCheckpoint = max(s.NoticeToCheckpoint, l.Checkpointed.Sub(l.Notice).Seconds())
	}
	if !l.Drained.IsZero() {
		s.NoticeToEmpty = max(s.NoticeToEmpty, l.Drained.Sub(l.Notice).Seconds())
	}
}

// noticeToWhole is the time from the first notice that hit a job to the moment at which it was whole again.
func noticeToWhole(events []*event) float64 {
	longest := 0.
	since := map[string]time.Time{}
	for _, e := range events {
		began, hit := since[e.Job]
		switch {
		case e.Kind == notice && e.Job != "" && !hit:
			since[e.Job] = e.Time
		case e.Kind == podsMoved && hit:
			longest = max(longest, e.Time.Sub(began).Seconds())
			delete(since, e.Job)
		}
	}
	return longest
}

// pendingSince is when the first pods were seen to wait, which is before it was settled that no more come.
func pendingSince(c *jobRecord, fallback time.Time) time.Time {
	for _, s := range c.States {
		if s.Pending > 0 {
			return s.At
		}
	}
	return fallback
}

// wholeAt is when all pods of the job ran first.
func (c *jobRecord) wholeAt() time.Time {
	for _, s := range c.States {
		if s.Running == c.Pods {
			return s.At
		}
	}
	return time.Time{}
}

// first is the first event of a kind about a job, nil where there is none.
func first(events []*event, k kind, job string) *event {
	for _, e := range events {
		if e.Kind == k && e.Job == job {
			return e
		}
	}
	return nil
}

// median is 0 for nothing.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// write leaves report.json, report.html and demo.svg in the directory.
func (r *report) write(directory string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	page, err := r.render()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(directory, "report.json"), append(text, '\n'), 0o644),
		os.WriteFile(filepath.Join(directory, "report.html"), page, 0o644),
		os.WriteFile(filepath.Join(directory, "demo.svg"), []byte(r.picture()), 0o644),
	)
}
