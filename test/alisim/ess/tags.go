package ess

import (
	"maps"
	"slices"

	"gpu-spot-autoscaler/test/alisim/cloud"
	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

// maxTagResources is how many tags one page of ListTagResources has.
const maxTagResources = 50

type tagResourceJSON struct {
	ResourceId, ResourceType, TagKey, TagValue string
	Propagate                                  bool
}

// listTagResources pages over groups, so that its token stays valid while groups come and go; a page ends with the
// group that fills it.
func (s groupActions) listTagResources(r *protocol.Request) (protocol.Reply, error) {
	if kind, err := r.Required("ResourceType"); err != nil {
		return nil, err
	} else if kind != "scalinggroup" {
		return nil, protocol.Invalid("ResourceType", kind)
	}
	ids, err := r.List("ResourceId", maxESSPage)
	if err != nil {
		return nil, err
	}
	filters, err := r.Tags()
	if err != nil {
		return nil, err
	}
	from, err := protocol.ParseToken(r.Get("NextToken"))
	if err != nil {
		return nil, err
	}
	candidates := s.AllGroups()
	if len(ids) > 0 {
		candidates = &cloud.Roster[*scaling.Group]{Items: groupsNamed(s.Engine, ids)}
	}
	var list []tagResourceJSON
	rest, _ := candidates.After(from, candidates.Len())
	for at, g := range rest {
		if protocol.MatchTags(g.Tags, filters) {
			list = append(list, tagResources(g)...)
		}
		if len(list) >= maxTagResources && at < len(rest)-1 {
			return protocol.Reply{"NextToken": protocol.Token(g), "TagResources": protocol.Wrap("TagResource", list)}, nil
		}
	}
	return protocol.Reply{"NextToken": "", "TagResources": protocol.Wrap("TagResource", list)}, nil
}

func tagResources(g *scaling.Group) []tagResourceJSON {
	var list []tagResourceJSON
	for _, key := range slices.Sorted(maps.Keys(g.Tags)) {
		list = append(list, tagResourceJSON{ResourceId: g.ID, ResourceType: "scalinggroup", TagKey: key, TagValue: g.Tags[key]})
	}
	return list
}
