package scaling

import (
	"cmp"
	"fmt"
)

// Rule is a simple scaling rule: an adjustment kept under a name.
type Rule struct {
	seq     uint64
	Group   *Group
	ID, ARI string
	Name    string
	// Kind is the adjustment type.
	Kind     string
	Value    int
	Cooldown int
}

// Ordinal is its place in the order of making.
func (r *Rule) Ordinal() uint64 { return r.seq }

// Rules lists the scaling rules of all groups, oldest first.
func (s *Engine) Rules() []*Rule { return s.rules.Items }

// FindRule returns the rule of the ID or ARI; false where there is none.
func (s *Engine) FindRule(name string) (*Rule, bool) {
	r, known := s.ruleByID[name]
	return r, known
}

// AddRule gives the rule its ID and ARI, and keeps it.
func (s *Engine) AddRule(r *Rule) {
	r.seq, r.ID = s.Cloud.Ordinal(), s.Cloud.NewID("asr-")
	r.ARI = fmt.Sprintf("ari:acs:ess:%s:%s:scalingrule/%s", s.Cloud.Region, s.Cloud.AccountID, r.ID)
	r.Name = cmp.Or(r.Name, r.ID)
	s.rules.Add(r)
	s.ruleByID[r.ID], s.ruleByID[r.ARI] = r, r
}

// DeleteRule forgets the rule.
func (s *Engine) DeleteRule(r *Rule) {
	s.rules.Remove(r)
	delete(s.ruleByID, r.ID)
	delete(s.ruleByID, r.ARI)
}
