package ess

import (
	"cmp"
	"slices"

	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

type ruleJSON struct {
	ScalingRuleId, ScalingRuleAri, ScalingRuleName, ScalingRuleType, ScalingGroupId, AdjustmentType string

	AdjustmentValue, Cooldown, MinSize, MaxSize int
}

func newRuleJSON(r *scaling.Rule) ruleJSON {
	return ruleJSON{
		ScalingRuleId: r.ID, ScalingRuleAri: r.ARI, ScalingRuleName: r.Name, ScalingRuleType: "SimpleScalingRule",
		ScalingGroupId: r.Group.ID, AdjustmentType: r.Kind, AdjustmentValue: r.Value, Cooldown: r.Cooldown,
		MinSize: r.Group.MinSize, MaxSize: r.Group.MaxSize,
	}
}

// ruleActions answers the requests about scaling rules.
type ruleActions struct {
	*scaling.Engine
	adjustments *scalingActions
}

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
	var found []*scaling.Rule
	for _, rule := range s.Rules() {
		if (groupID == "" || rule.Group.ID == groupID) && ruleMatches(rule, wanted) {
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

func ruleMatches(r *scaling.Rule, wanted [3][]string) bool {
	for n, own := range []string{r.ID, r.Name, r.ARI} {
		if len(wanted[n]) > 0 && !slices.Contains(wanted[n], own) {
			return false
		}
	}
	return true
}

func (s ruleActions) createScalingRule(r *protocol.Request) (protocol.Reply, error) {
	g, err := lookup(s.Engine, r)
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
	made := &scaling.Rule{Group: g}
	if err := changeRule(made, r); err != nil {
		return nil, err
	}
	s.AddRule(made)
	return protocol.Reply{"ScalingRuleId": made.ID, "ScalingRuleAri": made.ARI}, nil
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
func changeRule(r *scaling.Rule, asked *protocol.Request) error {
	r.Name = cmp.Or(asked.Get("ScalingRuleName"), r.Name)
	r.Kind = cmp.Or(asked.Get("AdjustmentType"), r.Kind)
	var err error
	if r.Value, err = asked.Integer("AdjustmentValue", r.Value, -10*scaling.MaxAdjustment, 10*scaling.MaxAdjustment); err != nil {
		return err
	}
	if r.Cooldown, err = asked.Integer("Cooldown", r.Cooldown, 0, 86400); err != nil {
		return err
	}
	_, err = r.Group.Delta(r.Kind, r.Value)
	return err
}

func (s ruleActions) deleteScalingRule(r *protocol.Request) (protocol.Reply, error) {
	rule, err := s.lookupRule(r, "ScalingRuleId")
	if err != nil {
		return nil, err
	}
	s.DeleteRule(rule)
	return protocol.Reply{}, nil
}

func (s ruleActions) executeScalingRule(r *protocol.Request) (protocol.Reply, error) {
	rule, err := s.lookupRule(r, "ScalingRuleAri")
	if err != nil {
		return nil, err
	}
	delta, err := rule.Group.Delta(rule.Kind, rule.Value)
	if err != nil {
		return nil, err
	}
	var p scaling.Purchase
	if partial, yes := r.Faults[protocol.FaultPartialFill]; yes {
		p.Most, p.Because = &partial.Count, partial.Code
	}
	return s.adjustments.execute(rule.Group, r, delta, p, false)
}

func (s ruleActions) lookupRule(r *protocol.Request, parameter string) (*scaling.Rule, error) {
	name, err := r.Required(parameter)
	if err != nil {
		return nil, err
	}
	rule, known := s.FindRule(name)
	if !known {
		return nil, protocol.NotFound("InvalidScalingRuleId.NotFound", "The specified scaling rule %q is not found.", name)
	}
	return rule, nil
}
