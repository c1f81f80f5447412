package alisim

import (
	"time"

	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/nodes"
)

// CatchUp does what is due by now.
func (s *Server) CatchUp() { s.cloud.CatchUp() }

// NextDue returns when the next thing will happen.
func (s *Server) NextDue() (time.Time, bool) { return s.cloud.NextDue() }

// Takes returns how long things take.
func (s *Server) Takes() cloud.Durations { return s.cloud.Takes }

// Registrar returns what makes Nodes of a world's instances, for no cluster.
func (w World) Registrar() *nodes.Registrar { return w.registrar(nil, clock.RealClock{}) }
