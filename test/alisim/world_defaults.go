package alisim

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/alisim/cloud"
)

// defaultKey is the access key of a world that names none. It opens nothing but this simulator.
var defaultKey = AccessKey{ID: "LTAIsimulatorAccessKey", Secret: "simulatorAccessKeySecret"}

// withDefaults returns a copy in which every field says what holds.
func (w World) withDefaults() World {
	w.AccountID = cmp.Or(w.AccountID, "1234567890123456")
	w.VPCID = cmp.Or(w.VPCID, "vpc-sim")
	w.Seed = cmp.Or(w.Seed, 1)
	w.Speed = cmp.Or(w.Speed, 1)
	if len(w.Credentials) == 0 {
		w.Credentials = []AccessKey{defaultKey}
	}
	w.Temper = w.Temper.OrDefault()
	w.VSwitches = slices.Clone(w.VSwitches)
	for i := range w.VSwitches {
		w.VSwitches[i].AvailableIPs = cmp.Or(w.VSwitches[i].AvailableIPs, 4096)
	}
	return w
}

// durations of a world that has its defaults.
func (w World) durations() cloud.Durations {
	takes := cloud.Quick
	if w.Temper.IsStrict() {
		takes = cloud.Real.At(w.Speed)
	}
	if w.ActivityDelay.Duration != 0 {
		takes.Activity = cloud.Exactly(max(0, w.ActivityDelay.Duration))
		takes.Removal = takes.Activity.Least
	}
	for _, own := range []struct {
		given metav1.Duration
		field *time.Duration
	}{
		{w.RemovalDelay, &takes.Removal}, {w.BootDelay, &takes.Boot}, {w.DriverDelay, &takes.Driver}, {w.NoticePeriod, &takes.Notice},
		{w.HealthCheckDelay, &takes.HealthCheck}, {w.ListLag, &takes.ListLag}, {w.TokenLife, &takes.TokenLife},
		{w.NodeGrace, &takes.NodeGrace}, {w.NodeController, &takes.NodeController},
	} {
		if own.given.Duration != 0 {
			*own.field = max(0, own.given.Duration)
		}
	}
	if w.BootDelay.Duration != 0 && w.ListLag.Duration == 0 {
		takes.ListLag = min(takes.ListLag, takes.Boot) // nothing lags so far that Nodes are up before
	}
	return takes
}
