package report

import (
	"fmt"
	"slices"
	"strings"
)

// Choose returns the measurements with these names, which are separated by commas, in the order of the names. Without names it returns all.
func Choose[T any](all []T, names string, nameOf func(T) string) (chosen []T, err error) {
	if names == "" {
		return all, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(one T) bool { return nameOf(one) == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no measurement %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}
