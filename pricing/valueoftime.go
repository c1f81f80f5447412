package pricing

import (
	"fmt"
	"math"
	"strconv"

	apiv1 "k8s.io/api/core/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	// MaxValueOfTime is the most that an instance-hour may be said to be worth. What is beyond is a mistake.
	MaxValueOfTime = 1e6
	// leastValueOfTime is what a pod's time is worth if it says less.
	leastValueOfTime = 1. / 16
)

// ParseValueOfTime returns what a tag or an annotation says that time is worth per instance-hour. The error says what it has to be.
func ParseValueOfTime(text string) (float64, error) {
	value, err := strconv.ParseFloat(text, 64)
	// The comparison is written so that NaN fails it.
	if err != nil || !(value >= 0 && value <= MaxValueOfTime) {
		return 0, fmt.Errorf("must be money per instance-hour from 0 (the on-demand price) to %.0f", MaxValueOfTime)
	}
	return value, nil
}

// ValueOfTime returns what the pods say that their time is worth, as a power of two, or 0; nil if they say nothing that can be read. Pods that say
// something else are bought for apart, so there must not be as many values as somebody has pods. Of the pods of one namespace, the most
// that one of them says counts for all, since a gang is bought for as a whole. Of those of several it counts only if all say the same: nobody
// decides what is bought for others.
func ValueOfTime(pods ...*apiv1.Pod) (most *float64) {
	alike, together := true, true
	for _, pod := range pods {
		value := valueOfTime(pod)
		first := valueOfTime(pods[0])
		alike = alike && (value == nil) == (first == nil) && (value == nil || *value == *first)
		together = together && pod.Namespace == pods[0].Namespace
		if value != nil && (most == nil || *value > *most) {
			most = value
		}
	}
	if !alike && !together {
		return nil
	}
	return most
}

func valueOfTime(pod *apiv1.Pod) *float64 {
	text, stated := pod.Annotations[api.AnnotationValueOfTime]
	if !stated {
		return nil
	}
	value, err := ParseValueOfTime(text)
	if err != nil {
		return nil
	}
	if value > 0 {
		value = max(math.Exp2(math.Round(math.Log2(value))), leastValueOfTime)
	}
	return &value
}
