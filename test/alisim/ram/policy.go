// Package ram decides as RAM does which actions a policy allows.
//
// Sources: RAM, "Policy elements" and "Policy evaluation" (a Deny wins, what nothing allows is denied); Resource Management,
// "Use tags to control resource access"; Auto Scaling, "Use tags to manage scaling group permissions", of 2026-06-20: a request
// that names no resource does not meet a condition on the resource's tags.
package ram

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Policy is a policy document. Of what RAM knows it may hold what stands here; see [Policy.Validate].
type Policy struct {
	Version   string      `json:"Version"`
	Statement []Statement `json:"Statement"`
}

// Statement allows or denies actions, where all of its conditions hold.
type Statement struct {
	Effect    string    `json:"Effect"`
	Action    Strings   `json:"Action"`
	Resource  Strings   `json:"Resource"`
	Condition Condition `json:"Condition,omitempty"`
}

// Condition has for each operator the values that each key may have.
type Condition map[string]map[string]Strings

// Strings are one string or several in JSON.
type Strings []string

// UnmarshalJSON takes both.
func (s *Strings) UnmarshalJSON(text []byte) error {
	var one string
	if json.Unmarshal(text, &one) == nil {
		*s = Strings{one}
		return nil
	}
	return json.Unmarshal(text, (*[]string)(s))
}

const (
	allow, deny = "Allow", "Deny"
	equals      = "StringEquals"
	everything  = "*"
	resourceTag = "acs:ResourceTag/"
	requestTag  = "acs:RequestTag/"
	service     = "acs:Service"
	roles       = "acs:ram:"
)

// Access is what somebody wants to do.
type Access struct {
	// Action is one such as "ess:RemoveInstances".
	Action string
	// Role is the role that is passed on, empty for other actions. Statements about it may name it as their resource.
	Role string
	// Service is whom the role is passed to.
	Service string
	// ResourceTags are the tags of the resource that a request names, nil where it names none; RequestTags are those that it
	// sets.
	ResourceTags, RequestTags map[string]string
}

// Parse reads a policy document and checks it.
func Parse(document []byte) (*Policy, error) {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.DisallowUnknownFields()
	p := &Policy{}
	if err := decoder.Decode(p); err != nil {
		return nil, fmt.Errorf("RAM policy: %w", err)
	}
	return p, p.Validate()
}

// Validate refuses what Allows would not decide as RAM does: resources other than all and RAM roles, and conditions other than that
// a tag of the resource or of the request, or the service that gets a role, equals a value.
func (p *Policy) Validate() error {
	if p == nil {
		return nil
	}
	var errs []error
	for i, s := range p.Statement {
		complain := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("RAM policy: Statement[%d]: "+format, append([]any{i}, args...)...))
		}
		if s.Effect != allow && s.Effect != deny {
			complain("Effect %q is neither Allow nor Deny", s.Effect)
		}
		for _, resource := range s.Resource {
			if resource != everything && !strings.HasPrefix(resource, roles) {
				complain("Resource %q is neither * nor a RAM role, and no other is understood here", resource)
			}
		}
		for operator, keys := range s.Condition {
			for key := range keys {
				if operator != equals || !strings.HasPrefix(key, resourceTag) && !strings.HasPrefix(key, requestTag) && key != service {
					complain("condition %s of %s is not understood here", operator, key)
				}
			}
		}
	}
	if p.Version != "1" {
		errs = append(errs, fmt.Errorf("RAM policy: Version %q is not 1", p.Version))
	}
	return errors.Join(errs...)
}

// Allows says whether the access is allowed.
func (p *Policy) Allows(a Access) bool {
	allowed := false
	for _, s := range p.Statement {
		if s.names(a.Action) && s.covers(a.Role) && s.Condition.holds(a) {
			if s.Effect == deny {
				return false
			}
			allowed = true
		}
	}
	return allowed
}

// Actions are those that are allowed under some condition, as the policy spells them.
func (p *Policy) Actions() []string {
	named := map[string]bool{}
	for _, s := range p.Statement {
		for _, action := range s.Action {
			named[action] = named[action] || s.Effect == allow
		}
	}
	maps.DeleteFunc(named, func(_ string, allowed bool) bool { return !allowed })
	return slices.Sorted(maps.Keys(named))
}

func (s Statement) names(action string) bool {
	return slices.ContainsFunc(s.Action, func(pattern string) bool {
		matches, err := path.Match(pattern, action)
		return err == nil && matches
	})
}

// covers says whether the statement is about the role, or about everything.
func (s Statement) covers(role string) bool {
	return slices.ContainsFunc(s.Resource, func(resource string) bool {
		_, name, _ := strings.Cut(resource, ":role/")
		matches, err := path.Match(name, role)
		return resource == everything || role != "" && err == nil && matches
	})
}

func (c Condition) holds(a Access) bool {
	for _, keys := range c {
		for key, values := range keys {
			value, known := a.value(key)
			if !known || !slices.Contains(values, value) {
				return false
			}
		}
	}
	return true
}

// value returns what a condition on the key is compared with.
func (a Access) value(key string) (value string, known bool) {
	if tag, ok := strings.CutPrefix(key, resourceTag); ok {
		value, known = a.ResourceTags[tag]
		return value, known
	}
	if tag, ok := strings.CutPrefix(key, requestTag); ok {
		value, known = a.RequestTags[tag]
		return value, known
	}
	return a.Service, key == service && a.Service != ""
}
