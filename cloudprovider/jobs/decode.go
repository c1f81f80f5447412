package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Count is a number of pods or of retries. The decoder refuses negative numbers, fractions, and numbers of more than 32 bits.
type Count uint32

// Int returns the number, or the largest int32 where that is less: the product of two such numbers is still an int.
func (c Count) Int() int { return int(min(c, math.MaxInt32)) }

// Or returns the number, or another one where the field is missing.
func (c *Count) Or(otherwise int) int {
	if c == nil {
		return otherwise
	}
	return c.Int()
}

// Condition is the part of a condition that is the same in all systems.
type Condition struct {
	Type   string                 `json:"type"`
	Status metav1.ConditionStatus `json:"status"`
}

// IsTrue returns whether one of the types is among the conditions with the status True.
func IsTrue(conditions []Condition, types ...string) bool {
	return slices.ContainsFunc(conditions, func(condition Condition) bool {
		return condition.Status == metav1.ConditionTrue && slices.Contains(types, condition.Type)
	})
}

// Decode reads the fields of an object that a struct has. Others are ignored, and null counts as missing. A field of the
// wrong type is a FieldError with its path; what could be decoded is in the struct all the same.
func Decode(object *unstructured.Unstructured, into any) error {
	data, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	return decode(data, "", into)
}

// decode reads the JSON of the field at a path.
func decode(data []byte, path string, into any) error {
	err := utiljson.Unmarshal(data, into) // case-sensitive, unlike encoding/json
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		field, _ := pathAt(json.NewDecoder(bytes.NewReader(data)), wrong.Offset, path)
		return &FieldError{Path: field, Problem: fmt.Sprintf("is %s, not %s", wrong.Value, nameOf(wrong.Type))}
	}
	if err != nil { // of a type that decodes itself, such as a quantity
		return &FieldError{Path: path, Problem: err.Error()}
	}
	return nil
}

// pathAt returns the path of the value at which a decoder stands after so many bytes, as json.UnmarshalTypeError gives them:
// its own path leaves out the keys of maps and the indices of lists. The path given is that of the decoder's next value.
func pathAt(decoder *json.Decoder, offset int64, path string) (found string, ok bool) {
	token, err := decoder.Token()
	if err != nil || decoder.InputOffset() >= offset {
		return path, true
	}
	switch token {
	case json.Delim('{'):
		for decoder.More() {
			key, err := decoder.Token()
			if err != nil {
				return path, true
			}
			if found, ok := pathAt(decoder, offset, join(path, fmt.Sprint(key))); ok {
				return found, true
			}
		}
	case json.Delim('['):
		for i := 0; decoder.More(); i++ {
			if found, ok := pathAt(decoder, offset, fmt.Sprintf("%s[%d]", path, i)); ok {
				return found, true
			}
		}
	default:
		return "", false
	}
	_, err = decoder.Token() // the end of the object or list
	return path, err != nil
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// nameOf returns what a value of the type is for a user.
func nameOf(kind reflect.Type) string {
	switch kind.Kind() {
	case reflect.Uint32:
		return "a whole number from 0 to 4294967295"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	}
	return kind.String()
}
