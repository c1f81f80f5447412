package protocol

import (
	"fmt"
	"net/url"
	"strconv"
)

// Parameters are those of one request, from query and body alike.
type Parameters url.Values

// Get returns a parameter, empty where it was not given.
func (p Parameters) Get(name string) string { return url.Values(p).Get(name) }

// Has says whether a parameter was given and is not empty.
func (p Parameters) Has(name string) bool { return p.Get(name) != "" }

// Required returns a parameter that must not be empty.
func (p Parameters) Required(name string) (string, error) {
	if v := p.Get(name); v != "" {
		return v, nil
	}
	return "", Missing(name)
}

// Integer returns a number between least and most, or otherwise where it was not given.
func (p Parameters) Integer(name string, otherwise, least, most int) (int, error) {
	text := p.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, Invalid(name, text)
	}
	return n, nil
}

// OptionalInteger returns nil where the number was not given.
func (p Parameters) OptionalInteger(name string, least, most int) (*int, error) {
	if !p.Has(name) {
		return nil, nil
	}
	n, err := p.Integer(name, 0, least, most)
	return &n, err
}

// Boolean returns otherwise where the parameter was not given.
func (p Parameters) Boolean(name string, otherwise bool) (bool, error) {
	text := p.Get(name)
	if text == "" {
		return otherwise, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, Invalid(name, text)
	}
	return b, nil
}

// List returns Name.1, Name.2 and so on up to the first gap, at most so many.
func (p Parameters) List(name string, most int) ([]string, error) {
	var values []string
	for i := 1; ; i++ {
		v, given := p[fmt.Sprintf("%s.%d", name, i)]
		if !given {
			break
		}
		values = append(values, v[0])
	}
	if len(values) > most {
		return nil, TooMany(name, len(values), most)
	}
	return values, nil
}

// Tags returns Tag.N.Key and Tag.N.Value. A key without value asks for the key alone.
func (p Parameters) Tags() ([]TagFilter, error) {
	var filters []TagFilter
	for i := 1; ; i++ {
		key := p.Get(fmt.Sprintf("Tag.%d.Key", i))
		if key == "" {
			break
		}
		value, given := p[fmt.Sprintf("Tag.%d.Value", i)]
		f := TagFilter{key: key}
		if given && value[0] != "" {
			f.value = &value[0]
		}
		filters = append(filters, f)
	}
	if len(filters) > maxTags {
		return nil, TooMany("Tag", len(filters), maxTags)
	}
	return filters, nil
}

// NewTags returns Tag.N.Key and Tag.N.Value as the tags that a request sets.
func (p Parameters) NewTags() map[string]string {
	tags := map[string]string{}
	for n := 1; p.Has(fmt.Sprintf("Tag.%d.Key", n)); n++ {
		tags[p.Get(fmt.Sprintf("Tag.%d.Key", n))] = p.Get(fmt.Sprintf("Tag.%d.Value", n))
	}
	return tags
}

// maxTags is how many tags a scaling group holds and a request may name.
const maxTags = 20

// TagFilter wants a tag; a nil value wants the key alone.
type TagFilter struct {
	key   string
	value *string
}

// MatchTags says whether the tags are as every filter wants them.
func MatchTags(tags map[string]string, filters []TagFilter) bool {
	for _, f := range filters {
		value, there := tags[f.key]
		if !there || f.value != nil && *f.value != value {
			return false
		}
	}
	return true
}

// Paging is PageNumber, which begins at 1, and PageSize.
type Paging struct{ Number, Size int }

// Paging checks the two; by default it is the first page of ten.
func (p Parameters) Paging(most int) (Paging, error) {
	number, err := p.Integer("PageNumber", 1, 1, 1<<30)
	if err != nil {
		return Paging{}, err
	}
	size, err := p.Integer("PageSize", 10, 1, most)
	return Paging{number, size}, err
}

// Page cuts one page out of items. Pages past the end are empty.
func Page[T any](items []T, p Paging) []T {
	from := min((p.Number-1)*p.Size, len(items))
	return items[from:min(from+p.Size, len(items))]
}
