package spotfirst

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/share"
	"gpu-spot-autoscaler/pricing"
)

// MalformedError is why an annotation of a pod is ignored.
type MalformedError struct{ Key, Value, Want string }

func (e *MalformedError) Error() string {
	return fmt.Sprintf("annotation %s=%q is ignored: it is not %s", e.Key, e.Value, e.Want)
}

// settings are what the annotations of a pod ask for. Durations are negative, the time is zero, and the floor is nil, if it does not say.
type settings struct {
	wait     time.Duration
	deadline time.Time
	// work is what is left of the whole work of the job.
	work, whole time.Duration
	// isUnread is whether it is yet to be read how much is left.
	isUnread bool
	// onDemand is whether only on-demand instances may be bought for the pod.
	onDemand bool
	// floor is how many of the pods of the job that have it are to be on demand.
	floor *share.Share
	// move is whether the pod is to move from an on-demand instance to a spot one, nil if it does not say.
	move *bool
}

// Check returns what is wrong with the annotations of a pod: one *MalformedError for each of those that say what may be bought for it and are ignored,
// joined.
func Check(annotations map[string]string) error {
	_, err := readSettings(annotations)
	return err
}

// settingsOf returns the settings of the pod, without the annotations that are ignored. The error is that of Check.
func settingsOf(pod *apiv1.Pod) (settings, error) { return readSettings(pod.Annotations) }

// wantedValueOfTime is made once: the annotations of each pod are read for each offering.
var wantedValueOfTime = fmt.Sprintf("money per instance-hour from 0 to %.0f", pricing.MaxValueOfTime)

// reading is settings while they are read.
type reading struct {
	settings
	annotations map[string]string
	errs        []error
}

func readSettings(annotations map[string]string) (settings, error) {
	r := reading{settings: settings{wait: -1, work: -1}, annotations: annotations}
	if len(annotations) == 0 {
		return r.settings, nil
	}
	r.read(api.AnnotationOnDemandAfter, "a duration such as 10m, or "+api.OnDemandNever, func(value string) bool {
		if strings.EqualFold(value, api.OnDemandNever) {
			r.wait = Never
			return true
		}
		return readDuration(&r.wait, value)
	})
	r.read(api.AnnotationDeadline, "a time such as 2026-12-31T18:00:00Z", func(value string) bool {
		parsed, err := time.Parse(time.RFC3339, value)
		if err == nil {
			r.deadline = parsed
		}
		return err == nil
	})
	r.readWork()
	r.read(api.AnnotationMoveToSpot, "true or false", func(value string) bool {
		parsed, err := strconv.ParseBool(value)
		if err == nil {
			r.move = &parsed
		}
		return err == nil
	})
	r.readCapacity()
	r.readFloor()
	r.read(api.AnnotationValueOfTime, wantedValueOfTime, func(value string) bool {
		_, err := pricing.ParseValueOfTime(value) // whoever compares prices or decides about deadlines reads it with pricing.ValueOfTime
		return err == nil
	})
	return r.settings, errors.Join(r.errs...)
}

// read has the value of the annotation parsed, if there is one. If it is not what is wanted, that is an error.
func (r *reading) read(key, want string, parse func(value string) bool) {
	if value, ok := r.annotations[key]; ok && !parse(value) {
		r.errs = append(r.errs, &MalformedError{key, value, want})
	}
}

// readWork reads the work that the pod states, and what it says is saved of that.
func (r *reading) readWork() {
	const want = "a duration such as 24h"
	r.read(api.AnnotationWork, want, func(value string) bool { return readDuration(&r.work, value) })
	r.whole = r.work
	saved := time.Duration(0)
	r.read(api.AnnotationWorkSaved, want, func(value string) bool { return readDuration(&saved, value) })
	if r.work > 0 {
		r.work = max(0, r.work-saved)
	}
}

// readCapacity comes after the wait: spot only wins over that, and on demand over both.
func (r *reading) readCapacity() {
	const want = api.CapacitySpotOnly + ", " + api.CapacitySpotFirst + ", or " + api.CapacityOnDemand
	r.read(api.AnnotationCapacity, want, func(value string) bool {
		switch value {
		case api.CapacitySpotOnly:
			r.wait = Never
		case api.CapacityOnDemand:
			r.onDemand, r.wait = true, -1
		case api.CapacitySpotFirst:
		default:
			return false
		}
		return true
	})
}

// readFloor comes last: a pod that takes spot only can have none.
func (r *reading) readFloor() {
	r.read(api.AnnotationOnDemandFloor, "a number such as 2, or a share such as 25%", func(value string) bool {
		floor, err := share.Parse(intstr.Parse(value))
		if err == nil && floor.Of(1) > 0 {
			r.floor = &floor
		}
		return err == nil
	})
	if r.floor != nil && r.wait == Never {
		r.floor = nil
		r.errs = append(r.errs, &MalformedError{api.AnnotationOnDemandFloor, r.annotations[api.AnnotationOnDemandFloor], "possible for a pod that takes spot only"})
	}
}

func readDuration(to *time.Duration, value string) bool {
	parsed, err := time.ParseDuration(value)
	if err != nil || parsed < 0 {
		return false
	}
	*to = parsed
	return true
}

// WorkOf returns how much useful time the job of the pod needs, and false if the pod does not say so.
func WorkOf(pod *apiv1.Pod) (time.Duration, bool) {
	s, _ := settingsOf(pod)
	return s.work, s.work >= 0
}

// slack returns how much longer than the work the time is that is left until the deadline; false if the pod states none.
func (s settings) slack(now time.Time) (time.Duration, bool) {
	return s.deadline.Sub(now) - s.work, !s.deadline.IsZero() && s.work >= 0
}
