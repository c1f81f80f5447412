package alisim

import (
	"net/url"
	"time"
)

// CatchUp does what is due by now.
func (s *Server) CatchUp() { s.cloud.catchUp(s.cloud.clock.Now()) }

// NextDue returns when the next thing will happen.
func (s *Server) NextDue() (time.Time, bool) {
	s.cloud.mu.Lock()
	defer s.cloud.mu.Unlock()
	return s.cloud.agenda.next()
}

// Sign returns the signature of a request.
func Sign(method string, p url.Values, secret string) string {
	return sign(stringToSign(method, parameters(p)), secret)
}
