package alisim

import "time"

// CatchUp does what is due by now.
func (s *Server) CatchUp() { s.cloud.CatchUp() }

// NextDue returns when the next thing will happen.
func (s *Server) NextDue() (time.Time, bool) { return s.cloud.NextDue() }
