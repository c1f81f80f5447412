package settings

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"gpu-spot-autoscaler/pricing"
)

// Values beyond these bounds are rejected as mistakes.
const (
	// maxPoolSize is the most instances that ESS lets a scaling group have.
	maxPoolSize = 2000
	// maxPrice is per instance-hour, more than a thousand times the on-demand price of any instance type.
	maxPrice = 1e6
	// maxSpend is per hour: a full pool of the dearest.
	maxSpend    = maxPrice * maxPoolSize
	maxDuration = 7 * 24 * time.Hour
)

// maxQuantity is far above what any node has of any resource, in bytes or pieces.
var maxQuantity = resource.MustParse("1Pi")

func readUnneededTime(s *Settings, v string) error {
	return optional(readDuration, &s.ScaleDownUnneededTime, v)
}

func readUnreadyTime(s *Settings, v string) error {
	return optional(readDuration, &s.ScaleDownUnreadyTime, v)
}

func readProvisionTime(s *Settings, v string) error {
	if err := optional(readDuration, &s.MaxNodeProvisionTime, v); err != nil {
		return err
	}
	if *s.MaxNodeProvisionTime == 0 {
		s.MaxNodeProvisionTime = nil
		return errors.New("must be above 0: no node ever comes up in no time")
	}
	return nil
}

func readThreshold(s *Settings, v string) error {
	return optional(readFraction, &s.ScaleDownUtilizationThreshold, v)
}

func readGPUThreshold(s *Settings, v string) error {
	return optional(readFraction, &s.ScaleDownGPUUtilizationThreshold, v)
}

func readIgnoreDaemonSets(s *Settings, v string) error {
	return optional(readBool, &s.IgnoreDaemonSetsUtilization, v)
}

// optional parses the value and sets the pointer only if that succeeds.
func optional[T any](read func(*T, string) error, to **T, value string) error {
	parsed := new(T)
	if err := read(parsed, value); err != nil {
		return err
	}
	*to = parsed
	return nil
}

func readSize(to **int, value string) error {
	size, err := strconv.Atoi(value)
	if err != nil || size < 0 || size > maxPoolSize {
		return fmt.Errorf("must be a whole number from 0 to %d", maxPoolSize)
	}
	*to = &size
	return nil
}

func readPrice(to *float64, value string) error {
	price, err := strconv.ParseFloat(value, 64)
	// The comparison is written so that NaN fails it.
	if err != nil || !(price >= 0 && price <= maxPrice) {
		return fmt.Errorf("must be a price per hour from 0 (no cap) to %.0f", maxPrice)
	}
	*to = price
	return nil
}

func readSpend(to *float64, value string) error {
	spend, err := strconv.ParseFloat(value, 64)
	// The comparison is written so that NaN fails it.
	if err != nil || !(spend >= 0 && spend <= maxSpend) {
		return fmt.Errorf("must be money per hour from 0 (no cap) to %.0f", maxSpend)
	}
	*to = spend
	return nil
}

func readValueOfTime(to *float64, value string) (err error) {
	*to, err = pricing.ParseValueOfTime(value)
	return err
}

var instanceTypeID = regexp.MustCompile(`^ecs(\.[a-z0-9-]+){1,3}$`)

func readTypeCap(instanceType string) readFunc {
	return func(s *Settings, value string) error {
		if !instanceTypeID.MatchString(instanceType) {
			return fmt.Errorf("%q is no instance type, such as ecs.gn7i-c8g1.2xlarge", instanceType)
		}
		var price float64
		if err := readPrice(&price, value); err != nil {
			return err
		}
		put(&s.PriceCapByType, instanceType, price)
		return nil
	}
}

func readDuration(to *time.Duration, value string) error {
	duration, err := time.ParseDuration(value)
	if err != nil || duration < 0 || duration > maxDuration {
		return fmt.Errorf("must be a duration such as 90s, 10m or 1h30m, from 0s to %s", maxDuration)
	}
	*to = duration
	return nil
}

func readFraction(to *float64, value string) error {
	fraction, err := strconv.ParseFloat(value, 64)
	if err != nil || !(fraction >= 0 && fraction <= 1) {
		return errors.New("must be a fraction from 0 to 1")
	}
	*to = fraction
	return nil
}

func readBool(to *bool, value string) error {
	yes, err := strconv.ParseBool(value)
	if err != nil {
		return errors.New("must be true or false")
	}
	*to = yes
	return nil
}

func readTargeting(to *Targeting, value string) error {
	switch targeting := Targeting(value); targeting {
	case TargetingAuto, TargetingRequest, TargetingWhole:
		*to = targeting
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", TargetingAuto, TargetingRequest, TargetingWhole)
}

func readPurchase(to *Purchase, value string) error {
	switch purchase := Purchase(value); purchase {
	case PurchaseByScaling, PurchaseByLaunch:
		*to = purchase
		return nil
	}
	return fmt.Errorf("must be %s or %s", PurchaseByScaling, PurchaseByLaunch)
}

func (s *Settings) addLabel(key, value string) error {
	if err := join(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); err != nil {
		return fmt.Errorf("is no label: %w", err)
	}
	put(&s.Labels, key, value)
	return nil
}

// addTaint parses <value>:<effect>.
func (s *Settings) addTaint(key, value string) error {
	value, effect, ok := strings.Cut(value, ":")
	taint := apiv1.Taint{Key: key, Value: value, Effect: apiv1.TaintEffect(effect)}
	switch taint.Effect {
	case apiv1.TaintEffectNoSchedule, apiv1.TaintEffectPreferNoSchedule, apiv1.TaintEffectNoExecute:
	default:
		ok = false
	}
	if !ok {
		return errors.New("must be <value>:<effect> with the effect NoSchedule, PreferNoSchedule or NoExecute")
	}
	if err := join(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)); err != nil {
		return fmt.Errorf("is no taint: %w", err)
	}
	// A tag of higher rank is read later and replaces the taint of the same key.
	s.Taints = slices.DeleteFunc(s.Taints, func(t apiv1.Taint) bool { return t.Key == key })
	s.Taints = append(s.Taints, taint)
	return nil
}

func (s *Settings) addResource(name, value string) error {
	if err := join(validation.IsQualifiedName(name)); err != nil {
		return fmt.Errorf("is no resource: %w", err)
	}
	quantity, err := resource.ParseQuantity(value)
	if err != nil || quantity.Sign() < 0 || quantity.Cmp(maxQuantity) > 0 {
		return fmt.Errorf("must be a quantity such as 4, 15200m or 28Gi, from 0 to %s", &maxQuantity)
	}
	if apiv1.ResourceName(name) != apiv1.ResourceCPU && quantity.MilliValue()%1000 != 0 {
		return errors.New("must be a whole number: only cpu may be divided")
	}
	put((*map[apiv1.ResourceName]resource.Quantity)(&s.Resources), apiv1.ResourceName(name), quantity)
	return nil
}

// join returns one error for all messages of Kubernetes' validation functions, nil where there is none.
func join(messages ...[]string) error {
	if all := slices.Concat(messages...); len(all) > 0 {
		return errors.New(strings.Join(all, "; "))
	}
	return nil
}

// put sets an entry and makes the map first if it is nil.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}
