package alisim

import (
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// Pass lets time go by in a world that runs on a clock which otherwise stands still, and stops at everything that happens
// on the way. It returns when all of it has happened, the coming and going of Nodes included.
func (s *Server) Pass(clk *clocktesting.FakeClock, d time.Duration) {
	until := clk.Now().Add(d)
	for {
		s.catchUp()
		next, any := s.cloud.NextDue()
		if !any || next.After(until) {
			break
		}
		clk.SetTime(next)
	}
	clk.SetTime(until)
	s.catchUp()
}

// catchUp does what is due by now.
func (s *Server) catchUp() {
	s.cloud.CatchUp()
	if s.keeper != nil {
		s.keeper.Settle()
	}
}
