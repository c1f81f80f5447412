package alisim

import (
	"time"

	"gpu-spot-autoscaler/test/alisim/cloud"
)

// CatchUp does what is due by now.
func (s *Server) CatchUp() { s.cloud.CatchUp() }

// NextDue returns when the next thing will happen.
func (s *Server) NextDue() (time.Time, bool) { return s.cloud.NextDue() }

// Takes returns how long things take.
func (s *Server) Takes() cloud.Durations { return s.cloud.Takes }
