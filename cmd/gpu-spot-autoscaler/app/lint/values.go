package lint

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/spf13/pflag"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"gpu-spot-autoscaler/deploy"
)

// values checks values of the chart by the schema that Helm refuses them by, with the library that Helm uses, and the names of flags in them.
func values(file string, text []byte, flags *pflag.FlagSet) ([]Finding, error) {
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
	found := unknownFlags(file, content, flags)
	if err := schema.Validate(content); err != nil {
		var invalid *jsonschema.ValidationError
		if !errors.As(err, &invalid) {
			return nil, err
		}
		printer := message.NewPrinter(language.English)
		for _, leaf := range leaves(invalid) {
			key := strings.Join(leaf.InstanceLocation, ".")
			found = append(found, Finding{File: file, Key: key, Message: leaf.ErrorKind.LocalizedString(printer)})
		}
	}
	slices.SortFunc(found, func(a, b Finding) int { return strings.Compare(a.Key+a.Message, b.Key+b.Message) })
	return found, nil
}

// unknownFlags returns the arguments that the autoscaler would refuse to start with: the schema takes any name.
func unknownFlags(file string, values any, flags *pflag.FlagSet) (found []Finding) {
	if flags == nil {
		return nil
	}
	all, _ := values.(map[string]any)
	arguments, _ := all["extraArgs"].(map[string]any)
	for name := range arguments {
		if flags.Lookup(name) == nil {
			found = append(found, Finding{File: file, Key: "extraArgs." + name, Message: "the autoscaler has no such flag: gpu-spot-autoscaler --help-all lists them"})
		}
	}
	return found
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
