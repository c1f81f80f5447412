package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
)

// account is whom the questions are put to: a real account, or the simulator.
type account struct {
	*pace
	// client is the product's own: its typed calls where they answer the question, Call where the raw reply does.
	client *client.Client
	region string
	// group is the scaling group that the questions are about, desired one with a desired capacity, which may be "".
	group, desired string
	// nodes is the cluster whose Nodes are looked at, nil for none.
	nodes kubernetes.Interface
	// offers are what is bought, by group; untargeted says that a purchase cannot name it.
	offers     map[string]offer
	untargeted bool
	// begun are the activities that the questions began in the group, in that order.
	begun []string
	// log tells what is being done.
	log func(format string, args ...any)
}

// parameters of a call, by their name on the wire. The region is added.
type parameters map[string]string

// with returns a copy that has more.
func (p parameters) with(name string, value any) parameters {
	more := parameters{}
	for n, v := range p {
		more[n] = v
	}
	more[name] = fmt.Sprint(value)
	return more
}

// list names values Name.1, Name.2 and so on.
func (p parameters) list(name string, values ...string) parameters {
	for n, value := range values {
		p = p.with(name+"."+strconv.Itoa(n+1), value)
	}
	return p
}

func (a *account) ess(ctx context.Context, action string, p parameters) (object, error) {
	return a.call(ctx, "ess", action, p)
}

func (a *account) ecs(ctx context.Context, action string, p parameters) (object, error) {
	return a.call(ctx, "ecs", action, p)
}

func (a *account) vpc(ctx context.Context, action string, p parameters) (object, error) {
	return a.call(ctx, "vpc", action, p)
}

func (a *account) call(ctx context.Context, service, action string, p parameters) (object, error) {
	text, err := a.client.Call(ctx, service, action, p.with("RegionId", a.region))
	if err != nil {
		return nil, err
	}
	var body object
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, fmt.Errorf("%s %s: the reply is no JSON object: %w", service, action, err)
	}
	return body, nil
}

// refusal returns the code with which the API refused a call; false where it did not, or where nobody knows: where an
// earlier attempt at the call had no answer, that may have been accepted.
func refusal(err error) (code string, refused bool) {
	var e *alicloud.Error
	if !errors.As(err, &e) || e.Uncertain || e.Status < http.StatusBadRequest || e.Class == alicloud.Unavailable || e.Class == alicloud.Throttled {
		return "", false
	}
	return e.Code, true
}

// verdict is the word for a call that was accepted or refused. Other errors are returned: they say nothing about the API.
func verdict(err error) (string, error) {
	if err == nil {
		return "accepted", nil
	}
	code, refused := refusal(err)
	switch {
	case !refused:
		return "", err
	case strings.HasPrefix(code, "Forbidden"), code == "NoPermission", alicloud.ClassOf(err) == alicloud.Unauthorized:
		return "", err // that is about the account's permissions
	}
	return "refused with " + code, nil
}

// object is a JSON object of a reply.
type object map[string]any

// text is a field as a string, "" where it is absent.
func (o object) text(name string) string {
	switch v := o[name].(type) {
	case nil:
		return ""
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	default:
		return fmt.Sprint(v)
	}
}

// number is a field as an integer, 0 where it is none.
func (o object) number(name string) int {
	n, err := strconv.Atoi(o.text(name))
	if err != nil {
		return 0
	}
	return n
}

// object is a nested object, nil where there is none.
func (o object) object(name string) object {
	nested, _ := o[name].(map[string]any)
	return nested
}

// list returns the objects of a list, which ESS and ECS nest in an object with one field or, in newer actions, do not.
func (o object) list(name string) []object {
	var found []object
	for _, item := range o.items(name) {
		if one, ok := item.(map[string]any); ok {
			found = append(found, one)
		}
	}
	return found
}

// texts returns the strings of a list.
func (o object) texts(name string) []string {
	var found []string
	for _, item := range o.items(name) {
		if one, ok := item.(string); ok {
			found = append(found, one)
		}
	}
	return found
}

func (o object) items(name string) []any {
	switch list := o[name].(type) {
	case []any:
		return list
	case map[string]any:
		for _, inner := range list {
			if items, ok := inner.([]any); ok {
				return items
			}
		}
	}
	return nil
}

// kind names what a field holds.
func (o object) kind(name string) string {
	switch v := o[name].(type) {
	case nil:
		return "absent"
	case string:
		return "string"
	case float64:
		return "number"
	case bool:
		return "boolean"
	case []any:
		return "list"
	case map[string]any:
		for inner, items := range v {
			if _, ok := items.([]any); ok {
				return "list " + inner
			}
		}
		return "object"
	}
	return "something else"
}
