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
	ids, err := taggable(r)
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
			list = append(list, tagsOf(g)...)
		}
		if len(list) >= maxTagResources && at < len(rest)-1 {
			return protocol.Reply{"NextToken": protocol.Token(g), "TagResources": protocol.Wrap("TagResource", list)}, nil
		}
	}
	return protocol.Reply{"NextToken": "", "TagResources": protocol.Wrap("TagResource", list)}, nil
}

// taggable returns the ids of the resources that a request is about, which are scaling groups: there is nothing else here that has tags.
func taggable(r *protocol.Request) (ids []string, err error) {
	if kind, err := r.Required("ResourceType"); err != nil {
		return nil, err
	} else if kind != "scalinggroup" {
		return nil, protocol.Invalid("ResourceType", kind)
	}
	return r.List("ResourceId", maxESSPage)
}

// maxGroupTags is how many tags a scaling group may have. Source: TagResources, "up to 20 tags".
const maxGroupTags = 20

// tagResources sets tags of groups: of all that are named, or of none.
func (s groupActions) tagResources(r *protocol.Request) (protocol.Reply, error) {
	tags := r.NewTags()
	if len(tags) == 0 {
		return nil, protocol.Missing("Tag.1.Key")
	}
	return s.changeTags(r, func(of map[string]string) { maps.Copy(of, tags) })
}

func (s groupActions) untagResources(r *protocol.Request) (protocol.Reply, error) {
	all, err := r.Boolean("All", false)
	if err != nil {
		return nil, err
	}
	keys, err := r.List("TagKey", maxGroupTags)
	if err != nil {
		return nil, err
	}
	return s.changeTags(r, func(of map[string]string) {
		maps.DeleteFunc(of, func(key, _ string) bool { return all && len(keys) == 0 || slices.Contains(keys, key) })
	})
}

// changeTags applies the change to copies of the tags of all groups that the request names, so that a refused request changes nothing.
func (s groupActions) changeTags(r *protocol.Request, change func(map[string]string)) (protocol.Reply, error) {
	ids, err := taggable(r)
	if err != nil {
		return nil, err
	}
	if len(ids) == 0 {
		return nil, protocol.Missing("ResourceId.1")
	}
	changed := map[*scaling.Group]map[string]string{}
	for _, id := range ids {
		g, known := s.FindGroup(id)
		if !known {
			return nil, groupNotFound(id)
		}
		tags := maps.Clone(g.Tags)
		if tags == nil {
			tags = map[string]string{}
		}
		if change(tags); len(tags) > maxGroupTags {
			return nil, protocol.BadRequest("InvalidTagCount", "Scaling group %q would have %d tags.", id, len(tags))
		}
		changed[g] = tags
	}
	for g, tags := range changed {
		g.Tags = tags
	}
	return protocol.Reply{}, nil
}

func tagsOf(g *scaling.Group) []tagResourceJSON {
	var list []tagResourceJSON
	for _, key := range slices.Sorted(maps.Keys(g.Tags)) {
		list = append(list, tagResourceJSON{ResourceId: g.ID, ResourceType: "scalinggroup", TagKey: key, TagValue: g.Tags[key]})
	}
	return list
}
