package lint

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"gpu-spot-autoscaler/deploy"
)

// values checks values of the chart by the schema that Helm refuses them by, with the library that Helm uses.
func values(file string, text []byte) ([]Finding, error) {
	const url = "values.schema.json"
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(deploy.ValuesSchema))
	if err != nil {
		return nil, fmt.Errorf("read the schema of the values: %w", err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource(url, document); err != nil {
		return nil, fmt.Errorf("read the schema of the values: %w", err)
	}
	schema, err := compiler.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("read the schema of the values: %w", err)
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(content); err == nil {
		return nil, nil
	} else if !errors.As(err, &invalid) {
		return nil, err
	}
	var found []Finding
	printer := message.NewPrinter(language.English)
	for _, leaf := range leaves(invalid) {
		key := strings.Join(leaf.InstanceLocation, ".")
		found = append(found, Finding{File: file, Key: key, Message: leaf.ErrorKind.LocalizedString(printer)})
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Key+a.Message, b.Key+b.Message) })
	return found, nil
}

// leaves returns the errors that have no causes.
func leaves(e *jsonschema.ValidationError) (all []*jsonschema.ValidationError) {
	if len(e.Causes) == 0 {
		return []*jsonschema.ValidationError{e}
	}
	for _, cause := range e.Causes {
		all = append(all, leaves(cause)...)
	}
	return all
}
