package push

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
	// interruption is the name of the event that announces the release of a spot instance. EventBridge puts the product before it.
	interruption = "Instance:PreemptibleInstanceInterruption"
	eventProduct = "ecs:"
	// cloudMonitorTime is the layout of times in CloudMonitor's events.
	cloudMonitorTime = "20060102T150405.999-0700"
)

var (
	ecsInstance = regexp.MustCompile(`^i-[A-Za-z0-9-]{1,60}$`)
	// ecsResource is acs:ecs:<region>:<account>:instance/<instance>.
	ecsResource = regexp.MustCompile(`^acs:ecs:([a-z0-9-]*):[^:]*:instance/(.+)$`)
)

// event is what an event says. The other fields are set only for an interruption.
type event struct {
	isInterruption     bool
	instanceID, region string
	time               time.Time
}

// envelope is an event in any of the three forms in which it is sent. They share no field except "time", which is a number in one
// of them.
type envelope struct {
	// CloudMonitor, by an alert rule.
	Name       text            `json:"name"`
	EventTime  text            `json:"eventTime"`
	RegionID   text            `json:"regionId"`
	ResourceID text            `json:"resourceId"`
	Content    object[details] `json:"content"`
	// CloudMonitor, by an event subscription.
	Alert object[alarm] `json:"alert"`
	// EventBridge: a CloudEvent.
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

// text is a string field that is empty if the value is not a string, because other events may have anything in that field, and
// are no error.
type text string

// UnmarshalJSON never fails.
func (t *text) UnmarshalJSON(body []byte) error {
	var s string
	if json.Unmarshal(body, &s) == nil {
		*t = text(s)
	}
	return nil
}

// object is a field that is zero if the value is not an object, because other events may have anything in that field.
type object[T any] struct{ of T }

// UnmarshalJSON returns an error only for an object that does not fit T.
func (o *object[T]) UnmarshalJSON(body []byte) error {
	if !bytes.HasPrefix(body, []byte("{")) {
		return nil
	}
	return json.Unmarshal(body, &o.of)
}

// parseEvents parses one event or an array of them. If some cannot be parsed it returns the others, and an error.
func parseEvents(body []byte) (events []event, err error) {
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
		parsed, err := e.parse()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		events = append(events, parsed)
	}
	return events, errors.Join(errs...)
}

func (e *envelope) parse() (event, error) {
	parsed := event{isInterruption: true}
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
			return event{}, errors.New("an event without a name or type")
		}
		return event{}, nil
	}
	parsed.instanceID, parsed.region = string(instance), string(region)
	parsed.complete(string(resource))
	if !ecsInstance.MatchString(parsed.instanceID) {
		return event{}, fmt.Errorf("an interruption of no ECS instance: %.80q", parsed.instanceID)
	}
	var err error
	parsed.time, err = parseTime(string(at))
	return parsed, err
}

// complete fills in from the name of the resource what the event does not state elsewhere.
func (e *event) complete(resource string) {
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

// parseTime requires a time, because an event without one could be replayed for ever.
func parseTime(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, cloudMonitorTime} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("an interruption without a time that can be parsed: %.80q", text)
}
