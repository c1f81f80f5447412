package options

import (
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// intOrPercent is a flag for a number or a share, such as 5 or 10%.
type intOrPercent struct{ value *intstr.IntOrString }

var _ pflag.Value = intOrPercent{}

// intOrPercentVar declares such a flag. The default is what the value points to.
func intOrPercentVar(value *intstr.IntOrString, name, usage string, fs *pflag.FlagSet) {
	fs.Var(intOrPercent{value}, name, usage)
}

func (v intOrPercent) String() string { return v.value.String() }

func (v intOrPercent) Type() string { return "intOrPercent" }

// Set returns an error for a text that is neither, and for a negative one.
func (v intOrPercent) Set(text string) error {
	parsed := intstr.Parse(text)
	number, err := intstr.GetScaledValueFromIntOrPercent(&parsed, 100, true)
	if err != nil || number < 0 {
		return fmt.Errorf("%q is neither a number, such as 5, nor a share, such as 10%%", text)
	}
	*v.value = parsed
	return nil
}
