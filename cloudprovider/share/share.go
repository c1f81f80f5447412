// Package share has what operators and owners of jobs state as a number, or as a share of something that grows and shrinks.
package share

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// Share is a number, or a share of another one. It is made by Parse.
type Share struct{ value intstr.IntOrString }

// Parse returns the Share that the value states. The error says what is wrong with the value: it is neither a number nor a percentage,
// or it is negative.
func Parse(value intstr.IntOrString) (Share, error) {
	number, err := intstr.GetScaledValueFromIntOrPercent(&value, 100, true)
	if err != nil {
		return Share{}, fmt.Errorf("%s is neither a number nor a percentage: %w", value.String(), err)
	}
	if number < 0 {
		return Share{}, fmt.Errorf("%s is negative", value.String())
	}
	return Share{value}, nil
}

// Of returns the number that it is, given how many there are of all. Shares are rounded up.
func (s Share) Of(all int) int {
	number, _ := intstr.GetScaledValueFromIntOrPercent(&s.value, all, true) // Parse has checked it
	return number
}

// String returns the value as it was stated.
func (s Share) String() string { return s.value.String() }
