package ess

import (
	"cmp"
	"fmt"
	"slices"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

type ruleJSON struct {
	ScalingRuleId, ScalingRuleAri, ScalingRuleName, ScalingRuleType, ScalingGroupId, AdjustmentType string

	AdjustmentValue, Cooldown, MinSize, MaxSize int
}

func newRuleJSON(r *rule) ruleJSON {
	return ruleJSON{
		ScalingRuleId: r.id, ScalingRuleAri: r.ari, ScalingRuleName: r.name, ScalingRuleType: "SimpleScalingRule",
		ScalingGroupId: r.group.ID, AdjustmentType: r.kind, AdjustmentValue: r.value, Cooldown: r.cooldown,
		MinSize: r.group.MinSize, MaxSize: r.group.MaxSize,
	}
}

// ruleActions answers the requests about scaling rules.
type ruleActions struct{ *Scaling }

func (s ruleActions) describeScalingRules(r *protocol.Request) (protocol.Reply, error) {
	pages, err := r.Paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	var wanted [3][]string
	for n, name := range []string{"ScalingRuleId", "ScalingRuleName", "ScalingRuleAri"} {
		if wanted[n], err = r.List(name, 10); err != nil {
			return nil, err
		}
	}
	groupID := r.Get("ScalingGroupId")
	var found []*rule
	for _, rule := range s.rules.Items {
		if (groupID == "" || rule.group.ID == groupID) && ruleMatches(rule, wanted) {
			found = append(found, rule)
		}
	}
	var list []ruleJSON
	for _, rule := range protocol.Page(found, pages) {
		list = append(list, newRuleJSON(rule))
	}
	return protocol.Reply{
		"TotalCount": len(found), "PageNumber": pages.Number, "PageSize": pages.Size, "ScalingRules": protocol.Wrap("ScalingRule", list),
	}, nil
}

func ruleMatches(r *rule, wanted [3][]string) bool {
	for n, own := range []string{r.id, r.name, r.ari} {
		if len(wanted[n]) > 0 && !slices.Contains(wanted[n], own) {
			return false
		}
	}
	return true
}

func (s ruleActions) createScalingRule(r *protocol.Request) (protocol.Reply, error) {
	g, err := lookup(s.Scaling, r)
	if err != nil {
		return nil, err
	}
	if kind := r.Get("ScalingRuleType"); kind != "" && kind != "SimpleScalingRule" {
		return nil, protocol.Invalid("ScalingRuleType", kind)
	}
	for _, name := range []string{"AdjustmentType", "AdjustmentValue"} {
		if _, err := r.Required(name); err != nil {
			return nil, err
		}
	}
	made := &rule{group: g}
	if err := changeRule(made, r); err != nil {
		return nil, err
	}
	made.seq, made.id = s.cloud.Ordinal(), s.cloud.NewID("asr-")
	made.ari = fmt.Sprintf("ari:acs:ess:%s:%s:scalingrule/%s", s.cloud.Region, s.cloud.AccountID, made.id)
	made.name = cmp.Or(made.name, made.id)
	s.rules.Add(made)
	s.ruleByID[made.id], s.ruleByID[made.ari] = made, made
	return protocol.Reply{"ScalingRuleId": made.id, "ScalingRuleAri": made.ari}, nil
}

func (s ruleActions) modifyScalingRule(r *protocol.Request) (protocol.Reply, error) {
	rule, err := s.lookupRule(r, "ScalingRuleId")
	if err != nil {
		return nil, err
	}
	changed := *rule
	if err := changeRule(&changed, r); err != nil {
		return nil, err
	}
	*rule = changed
	return protocol.Reply{}, nil
}

// changeRule sets what the request names.
func changeRule(r *rule, asked *protocol.Request) error {
	r.name = cmp.Or(asked.Get("ScalingRuleName"), r.name)
	r.kind = cmp.Or(asked.Get("AdjustmentType"), r.kind)
	var err error
	if r.value, err = asked.Integer("AdjustmentValue", r.value, -10*maxAdjustment, 10*maxAdjustment); err != nil {
		return err
	}
	if r.cooldown, err = asked.Integer("Cooldown", r.cooldown, 0, 86400); err != nil {
		return err
	}
	_, err = r.group.delta(r.kind, r.value)
	return err
}

func (s ruleActions) deleteScalingRule(r *protocol.Request) (protocol.Reply, error) {
	rule, err := s.lookupRule(r, "ScalingRuleId")
	if err != nil {
		return nil, err
	}
	s.deleteRule(rule)
	return protocol.Reply{}, nil
}

func (s ruleActions) executeScalingRule(r *protocol.Request) (protocol.Reply, error) {
	rule, err := s.lookupRule(r, "ScalingRuleAri")
	if err != nil {
		return nil, err
	}
	delta, err := rule.group.delta(rule.kind, rule.value)
	if err != nil {
		return nil, err
	}
	var p purchase
	if partial, yes := r.Faults[protocol.FaultPartialFill]; yes {
		p.most, p.because = &partial.Count, partial.Code
	}
	return scalingActions{s.Scaling}.execute(rule.group, r, delta, p, false)
}

func (s ruleActions) lookupRule(r *protocol.Request, parameter string) (*rule, error) {
	name, err := r.Required(parameter)
	if err != nil {
		return nil, err
	}
	rule, known := s.ruleByID[name]
	if !known {
		return nil, protocol.NotFound("InvalidScalingRuleId.NotFound", "The specified scaling rule %q is not found.", name)
	}
	return rule, nil
}
