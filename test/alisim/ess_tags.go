package alisim

import (
	"maps"
	"slices"
)

// maxTagResources is how many tags one page of ListTagResources has.
const maxTagResources = 50

type tagResourceJSON struct {
	ResourceId, ResourceType, TagKey, TagValue string
	Propagate                                  bool
}

// listTagResources pages over groups, so that its token stays valid while groups come and go; a page ends with the
// group that fills it.
func listTagResources(c *cloud, r *request) (reply, error) {
	if kind, err := r.required("ResourceType"); err != nil {
		return nil, err
	} else if kind != "scalinggroup" {
		return nil, invalid("ResourceType", kind)
	}
	ids, err := r.list("ResourceId", maxESSPage)
	if err != nil {
		return nil, err
	}
	filters, err := r.tags()
	if err != nil {
		return nil, err
	}
	from, err := parseToken(r.get("NextToken"))
	if err != nil {
		return nil, err
	}
	candidates := &c.groups
	if len(ids) > 0 {
		candidates = &roster[*group]{items: c.groupsOf(ids)}
	}
	var list []tagResourceJSON
	rest, _ := candidates.after(from, candidates.len())
	for at, g := range rest {
		if matchTags(g.Tags, filters) {
			list = append(list, g.tagResources()...)
		}
		if len(list) >= maxTagResources && at < len(rest)-1 {
			return reply{"NextToken": token(g), "TagResources": wrap("TagResource", list)}, nil
		}
	}
	return reply{"NextToken": "", "TagResources": wrap("TagResource", list)}, nil
}

func (g *group) tagResources() []tagResourceJSON {
	var list []tagResourceJSON
	for _, key := range slices.Sorted(maps.Keys(g.Tags)) {
		list = append(list, tagResourceJSON{ResourceId: g.ID, ResourceType: "scalinggroup", TagKey: key, TagValue: g.Tags[key]})
	}
	return list
}
