package plan

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Stdin is the name that stands for the standard input in place of that of a file.
const Stdin = "-"

const stdinName = "standard input"

// Document is an object of a file.
type Document struct {
	// File is the name of the file, Number that of the document in it, from 1 on.
	File   string
	Number int
	Object *unstructured.Unstructured
}

// String says where the object stands, and which it is.
func (d *Document) String() string {
	where := fmt.Sprintf("%s, document %d", d.File, d.Number)
	if d.Object == nil || d.Object.GetKind() == "" {
		return where
	}
	return fmt.Sprintf("%s (%s %s/%s)", where, d.Object.GetKind(), d.Object.GetNamespace(), d.Object.GetName())
}

// errorf returns an error that begins with where the object stands.
func (d *Document) errorf(format string, args ...any) error {
	return fmt.Errorf("%v: %w", d, fmt.Errorf(format, args...))
}

// ReadFiles reads the objects of the files. Those that name no namespace are in the given one. The error joins that of each document that
// cannot be read.
func ReadFiles(files []string, stdin io.Reader, namespace string) (documents []*Document, err error) {
	var errs []error
	for _, name := range files {
		found, err := readFile(name, stdin, namespace)
		documents, errs = append(documents, found...), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if len(documents) == 0 {
		return nil, fmt.Errorf("%s: there is no object", shownNames(files))
	}
	return documents, nil
}

// shownNames returns the names of the files, as people are told them.
func shownNames(files []string) string {
	shown := slices.Clone(files)
	for i := range shown {
		if shown[i] == Stdin {
			shown[i] = stdinName
		}
	}
	return strings.Join(shown, ", ")
}

func readFile(name string, stdin io.Reader, namespace string) (documents []*Document, err error) {
	in, shown := stdin, stdinName
	if name != Stdin {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in, shown = file, name
	}
	var errs []error
	reader := utilyaml.NewYAMLReader(bufio.NewReader(in))
	for number := 1; ; number++ {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return documents, errors.Join(errs...)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", shown, err)
		}
		found, err := readDocument(&Document{File: shown, Number: number}, text, namespace)
		documents, errs = append(documents, found...), append(errs, err)
	}
}

// readDocument returns the object of the document, or those of a List. A document of nothing but comments has none.
func readDocument(d *Document, text []byte, namespace string) ([]*Document, error) {
	var content map[string]any
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, d.errorf("%w", err)
	}
	if strings.TrimSpace(string(asJSON)) == "null" {
		return nil, nil
	}
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(asJSON, &content); err != nil {
		return nil, d.errorf("is no object: %w", err)
	}
	for _, field := range []string{"apiVersion", "kind"} {
		if value, _ := content[field].(string); value == "" {
			return nil, d.errorf("%s: is missing", field)
		}
	}
	if err := object.UnmarshalJSON(asJSON); err != nil {
		return nil, d.errorf("%w", err)
	}
	if !object.IsList() {
		d.Object = object
		return []*Document{d}, d.check(namespace)
	}
	var all []*Document
	var errs []error
	err = object.EachListItem(func(item runtime.Object) error {
		each := &Document{File: d.File, Number: d.Number, Object: item.(*unstructured.Unstructured)}
		all, errs = append(all, each), append(errs, each.check(namespace))
		return nil
	})
	return all, errors.Join(append(errs, err)...)
}

// check sets the namespace if there is none, and a name if one is to be generated.
func (d *Document) check(namespace string) error {
	if d.Object.GetNamespace() == "" {
		d.Object.SetNamespace(namespace)
	}
	if d.Object.GetName() == "" && d.Object.GetGenerateName() != "" {
		d.Object.SetName(d.Object.GetGenerateName() + "planned")
	}
	if d.Object.GetName() == "" {
		return d.errorf("metadata.name: is missing")
	}
	if wrong := validation.IsDNS1123Subdomain(d.Object.GetName()); len(wrong) > 0 {
		return d.errorf("metadata.name: %s", strings.Join(wrong, "; "))
	}
	if wrong := validation.IsDNS1123Label(d.Object.GetNamespace()); len(wrong) > 0 {
		return d.errorf("metadata.namespace: %s", strings.Join(wrong, "; "))
	}
	return nil
}
