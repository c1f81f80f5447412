package alisim

import (
	"fmt"
	"net/url"
	"strconv"
)

// parameters are those of one request, from query and body alike.
type parameters url.Values

func (p parameters) get(name string) string { return url.Values(p).Get(name) }

func (p parameters) has(name string) bool { return p.get(name) != "" }

// required returns a parameter that must not be empty.
func (p parameters) required(name string) (string, error) {
	if v := p.get(name); v != "" {
		return v, nil
	}
	return "", missing(name)
}

// integer returns a number between least and most, or otherwise where it was not given.
func (p parameters) integer(name string, otherwise, least, most int) (int, error) {
	text := p.get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, invalid(name, text)
	}
	return n, nil
}

// optionalInteger returns nil where the number was not given.
func (p parameters) optionalInteger(name string, least, most int) (*int, error) {
	if !p.has(name) {
		return nil, nil
	}
	n, err := p.integer(name, 0, least, most)
	return &n, err
}

func (p parameters) boolean(name string, otherwise bool) (bool, error) {
	text := p.get(name)
	if text == "" {
		return otherwise, nil
	}
	b, err := strconv.ParseBool(text)
	if err != nil {
		return false, invalid(name, text)
	}
	return b, nil
}

// list returns Name.1, Name.2 and so on up to the first gap, at most so many.
func (p parameters) list(name string, most int) ([]string, error) {
	var values []string
	for i := 1; ; i++ {
		v, given := p[fmt.Sprintf("%s.%d", name, i)]
		if !given {
			break
		}
		values = append(values, v[0])
	}
	if len(values) > most {
		return nil, tooMany(name, len(values), most)
	}
	return values, nil
}

// tags returns Tag.N.Key and Tag.N.Value. A key without value asks for the key alone.
func (p parameters) tags() ([]tagFilter, error) {
	var filters []tagFilter
	for i := 1; ; i++ {
		key := p.get(fmt.Sprintf("Tag.%d.Key", i))
		if key == "" {
			break
		}
		value, given := p[fmt.Sprintf("Tag.%d.Value", i)]
		f := tagFilter{key: key}
		if given && value[0] != "" {
			f.value = &value[0]
		}
		filters = append(filters, f)
	}
	if len(filters) > maxTags {
		return nil, tooMany("Tag", len(filters), maxTags)
	}
	return filters, nil
}

// maxTags is how many tags a scaling group holds and a request may name.
const maxTags = 20

type tagFilter struct {
	key   string
	value *string
}

func matchTags(tags map[string]string, filters []tagFilter) bool {
	for _, f := range filters {
		value, there := tags[f.key]
		if !there || f.value != nil && *f.value != value {
			return false
		}
	}
	return true
}

// paging is PageNumber and PageSize.
type paging struct{ number, size int }

// paging checks the two; by default it is the first page of ten.
func (p parameters) paging(most int) (paging, error) {
	number, err := p.integer("PageNumber", 1, 1, 1<<30)
	if err != nil {
		return paging{}, err
	}
	size, err := p.integer("PageSize", 10, 1, most)
	return paging{number, size}, err
}
