package alisim

import (
	"fmt"
	"slices"
)

// rule is a simple scaling rule: an adjustment kept under a name.
type rule struct {
	seq      uint64
	group    *group
	id, ari  string
	name     string
	kind     string
	value    int
	cooldown int
}

func (r *rule) ordinal() uint64 { return r.seq }

type ruleJSON struct {
	ScalingRuleId, ScalingRuleAri, ScalingRuleName, ScalingRuleType, ScalingGroupId, AdjustmentType string

	AdjustmentValue, Cooldown, MinSize, MaxSize int
}

func (r *rule) json() ruleJSON {
	return ruleJSON{
		ScalingRuleId: r.id, ScalingRuleAri: r.ari, ScalingRuleName: r.name, ScalingRuleType: "SimpleScalingRule",
		ScalingGroupId: r.group.ID, AdjustmentType: r.kind, AdjustmentValue: r.value, Cooldown: r.cooldown,
		MinSize: r.group.MinSize, MaxSize: r.group.MaxSize,
	}
}

func describeScalingRules(c *cloud, r *request) (reply, error) {
	pages, err := r.paging(maxESSPage)
	if err != nil {
		return nil, err
	}
	var wanted [3][]string
	for n, name := range []string{"ScalingRuleId", "ScalingRuleName", "ScalingRuleAri"} {
		if wanted[n], err = r.list(name, 10); err != nil {
			return nil, err
		}
	}
	groupID := r.get("ScalingGroupId")
	var found []*rule
	for _, rule := range c.rules.items {
		if (groupID == "" || rule.group.ID == groupID) && rule.matches(wanted) {
			found = append(found, rule)
		}
	}
	var list []ruleJSON
	for _, rule := range page(found, pages.number, pages.size) {
		list = append(list, rule.json())
	}
	return reply{
		"TotalCount": len(found), "PageNumber": pages.number, "PageSize": pages.size, "ScalingRules": wrap("ScalingRule", list),
	}, nil
}

func (r *rule) matches(wanted [3][]string) bool {
	for n, own := range []string{r.id, r.name, r.ari} {
		if len(wanted[n]) > 0 && !slices.Contains(wanted[n], own) {
			return false
		}
	}
	return true
}

func createScalingRule(c *cloud, r *request) (reply, error) {
	g, err := c.lookup(r)
	if err != nil {
		return nil, err
	}
	if kind := r.get("ScalingRuleType"); kind != "" && kind != "SimpleScalingRule" {
		return nil, invalid("ScalingRuleType", kind)
	}
	for _, name := range []string{"AdjustmentType", "AdjustmentValue"} {
		if _, err := r.required(name); err != nil {
			return nil, err
		}
	}
	made := &rule{group: g}
	if err := made.change(r); err != nil {
		return nil, err
	}
	made.seq, made.id = c.ordinal(), c.newID("asr-")
	made.ari = fmt.Sprintf("ari:acs:ess:%s:%s:scalingrule/%s", c.world.Region, c.world.AccountID, made.id)
	made.name = orElse(made.name, made.id)
	c.rules.add(made)
	c.ruleByID[made.id], c.ruleByID[made.ari] = made, made
	return reply{"ScalingRuleId": made.id, "ScalingRuleAri": made.ari}, nil
}

func modifyScalingRule(c *cloud, r *request) (reply, error) {
	rule, err := c.lookupRule(r, "ScalingRuleId")
	if err != nil {
		return nil, err
	}
	changed := *rule
	if err := changed.change(r); err != nil {
		return nil, err
	}
	*rule = changed
	return reply{}, nil
}

// change sets what the request names.
func (r *rule) change(asked *request) error {
	r.name = orElse(asked.get("ScalingRuleName"), r.name)
	r.kind = orElse(asked.get("AdjustmentType"), r.kind)
	var err error
	if r.value, err = asked.integer("AdjustmentValue", r.value, -10*maxAdjustment, 10*maxAdjustment); err != nil {
		return err
	}
	if r.cooldown, err = asked.integer("Cooldown", r.cooldown, 0, 86400); err != nil {
		return err
	}
	_, err = r.group.delta(r.kind, r.value)
	return err
}

func deleteScalingRule(c *cloud, r *request) (reply, error) {
	rule, err := c.lookupRule(r, "ScalingRuleId")
	if err != nil {
		return nil, err
	}
	c.deleteRule(rule)
	return reply{}, nil
}

func (c *cloud) deleteRule(r *rule) {
	c.rules.remove(r)
	delete(c.ruleByID, r.id)
	delete(c.ruleByID, r.ari)
}

func executeScalingRule(c *cloud, r *request) (reply, error) {
	rule, err := c.lookupRule(r, "ScalingRuleAri")
	if err != nil {
		return nil, err
	}
	delta, err := rule.group.delta(rule.kind, rule.value)
	if err != nil {
		return nil, err
	}
	var p purchase
	if partial, yes := r.faults[FaultPartialFill]; yes {
		p.most, p.because = &partial.Count, partial.Code
	}
	return c.execute(rule.group, r, delta, p, false)
}

func (c *cloud) lookupRule(r *request, parameter string) (*rule, error) {
	name, err := r.required(parameter)
	if err != nil {
		return nil, err
	}
	rule, known := c.ruleByID[name]
	if !known {
		return nil, notFound("InvalidScalingRuleId.NotFound", "The specified scaling rule %q is not found.", name)
	}
	return rule, nil
}
