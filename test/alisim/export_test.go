package alisim

import (
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/nodes"
)

// Takes returns how long things take.
func (s *Server) Takes() cloud.Durations { return s.cloud.Takes }

// Registrar returns what makes Nodes of a world's instances, for no cluster.
func (w World) Registrar() *nodes.Registrar { return w.registrar(nil, clock.RealClock{}) }
