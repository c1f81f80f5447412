package reclaim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	// interruption is the name of the event that announces the release of a spot instance. EventBridge puts the product
	// before it.
	interruption  = "Instance:PreemptibleInstanceInterruption"
	eventProduct  = "ecs:"
	cloudMonitors = "20060102T150405.999-0700" // CloudMonitor's form of a time
)

var (
	ecsInstance = regexp.MustCompile(`^i-[A-Za-z0-9-]{1,60}$`)
	// ecsResource is acs:ecs:<region>:<account>:instance/<instance>.
	ecsResource = regexp.MustCompile(`^acs:ecs:([a-z0-9-]*):[^:]*:instance/(.+)$`)
)

// pushedEvent is what an event says. Of one that is no interruption nothing else is known.
type pushedEvent struct {
	isInterruption     bool
	instanceID, region string
	time               time.Time
}

// envelope is an event in any of the forms in which it is sent. The three share no field, but for "time", which one has
// as a number.
type envelope struct {
	// CloudMonitor's own, by an alert rule.
	Name       text            `json:"name"`
	EventTime  text            `json:"eventTime"`
	RegionID   text            `json:"regionId"`
	ResourceID text            `json:"resourceId"`
	Content    object[details] `json:"content"`
	// CloudMonitor's event subscription.
	Alert object[alarm] `json:"alert"`
	// A CloudEvent of EventBridge.
	Type     text            `json:"type"`
	Time     text            `json:"time"`
	Subject  text            `json:"subject"`
	EBRegion text            `json:"aliyunregionid"`
	Data     object[details] `json:"data"`
}

type alarm struct {
	EventName text            `json:"eventName"`
	ARN       text            `json:"arn"`
	Content   object[details] `json:"eventContentMap"`
	Meta      struct {
		Event struct {
			EventTime text `json:"eventTime"`
			RegionID  text `json:"regionId"`
		} `json:"sysEventMeta"`
	} `json:"meta"`
}

type details struct {
	InstanceID text `json:"instanceId"`
}

// text is empty for what is not a string, and object for what is not an object: other events, which are no error, have
// whatever they have there.
type text string

// UnmarshalJSON never fails.
func (t *text) UnmarshalJSON(body []byte) error {
	var s string
	if json.Unmarshal(body, &s) == nil {
		*t = text(s)
	}
	return nil
}

type object[T any] struct{ of T }

// UnmarshalJSON fails for objects that are none of T.
func (o *object[T]) UnmarshalJSON(body []byte) error {
	if !bytes.HasPrefix(body, []byte("{")) {
		return nil
	}
	return json.Unmarshal(body, &o.of)
}

// readPushed takes one event or an array. Where some cannot be read it returns the others, and an error.
func readPushed(body []byte) (events []pushedEvent, err error) {
	body = bytes.TrimSpace(body)
	if !bytes.HasPrefix(body, []byte("[")) {
		body = slices.Concat([]byte("["), body, []byte("]"))
	}
	var envelopes []envelope
	if err := json.Unmarshal(body, &envelopes); err != nil {
		return nil, fmt.Errorf("not an event: %w", err)
	}
	if len(envelopes) == 0 {
		return nil, errors.New("no event")
	}
	var errs []error
	for _, e := range envelopes {
		event, err := e.read()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		events = append(events, event)
	}
	return events, errors.Join(errs...)
}

func (e *envelope) read() (pushedEvent, error) {
	event := pushedEvent{isInterruption: true}
	var instance, region, resource, at text
	alarm := e.Alert.of
	switch interruption {
	case string(e.Name):
		instance, region, resource, at = e.Content.of.InstanceID, e.RegionID, e.ResourceID, e.EventTime
	case string(alarm.EventName):
		meta := alarm.Meta.Event
		instance, region, resource, at = alarm.Content.of.InstanceID, meta.RegionID, alarm.ARN, meta.EventTime
	case strings.TrimPrefix(string(e.Type), eventProduct):
		instance, region, resource, at = e.Data.of.InstanceID, e.EBRegion, e.Subject, e.Time
	default:
		if e.Name == "" && alarm.EventName == "" && e.Type == "" {
			return pushedEvent{}, errors.New("an event without a name or type")
		}
		return pushedEvent{}, nil
	}
	event.instanceID, event.region = string(instance), string(region)
	event.complete(string(resource))
	if !ecsInstance.MatchString(event.instanceID) {
		return pushedEvent{}, fmt.Errorf("an interruption of no ECS instance: %.80q", event.instanceID)
	}
	var err error
	event.time, err = readEventTime(string(at))
	return event, err
}

// complete takes from the name of the resource what is not said elsewhere.
func (e *pushedEvent) complete(resource string) {
	parts := ecsResource.FindStringSubmatch(resource)
	if parts == nil {
		return
	}
	if e.region == "" {
		e.region = parts[1]
	}
	if e.instanceID == "" {
		e.instanceID = parts[2]
	}
}

// readEventTime insists on a time: without one an event could be sent again for ever.
func readEventTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, cloudMonitors} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("an interruption without a time that can be read: %.80q", text)
}
