package lint

import (
	"errors"
	"fmt"

	"gpu-spot-autoscaler/cloudprovider/processors/spotfirst"
)

// ofPods checks annotations of pods wherever in the object they are, by the parser that the autoscaler itself uses.
func ofPods(file, resource string, content map[string]any) (found []Finding) {
	walk(content, func(object map[string]any) {
		annotations, ok := object["annotations"].(map[string]any)
		if !ok {
			return
		}
		var joined interface{ Unwrap() []error }
		if !errors.As(spotfirst.Check(strs(annotations)), &joined) {
			return
		}
		for _, one := range joined.Unwrap() {
			var malformed *spotfirst.MalformedError
			if errors.As(one, &malformed) {
				found = append(found, Finding{file, resource, malformed.Key, fmt.Sprintf("%q: is not %s", malformed.Value, malformed.Want)})
			}
		}
	})
	return found
}
