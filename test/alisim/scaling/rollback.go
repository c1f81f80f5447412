package scaling

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// rollBack releases what an activity created that comes short: as much as the temper says, or as the request's fault does.
// Instances that clients may have seen go first.
func (a *Activity) rollBack() {
	s := a.Group.scaling
	count := 0
	if a.Failure != nil && !a.aged {
		switch s.Cloud.Temper.RollBack {
		case temper.RollBackSome:
			count = (len(a.Created) + 1) / 2
		case temper.RollBackAll:
			count = len(a.Created)
		}
	}
	if forced := a.Purchase.RollBack; forced != nil {
		count = max(count, min(forced.Count, len(a.Created)))
		if a.Failure == nil && count > 0 {
			a.Failure = protocol.Fail(cmp.Or(forced.Code, CodeRolledBack), "%d instances could not be added to the scaling group.", count)
		}
	}
	listed := func(i *Member) int {
		if _, is := s.listedBy[i.ID]; is {
			return 0
		}
		return 1
	}
	created := slices.SortedStableFunc(slices.Values(a.Created), func(x, y *Member) int { return cmp.Compare(listed(x), listed(y)) })
	for _, i := range created[:count] {
		a.RolledBack = append(a.RolledBack, i.ID)
		s.Compute.Release(i.Instance)
		i.detach()
	}
	a.Created = created[count:]
}

// Texts in which a failure stands where it has no field of its own.
const (
	failedToCreate = `Fail to create Instances into scaling group(code:"%s", msg:"%s")`
	failedToRemove = `Fail to remove Instances from scaling group(code:"%s", msg:"%s")`
)

// Detail says in words what came of the activity: what went wrong, once for each attempt, else what came of it.
func (a *Activity) Detail() string {
	var lines []string
	form := failedToCreate
	if len(a.Victims) > 0 {
		form = failedToRemove
	}
	for _, why := range a.attempts {
		lines = append(lines, fmt.Sprintf(form, why.Code, why.Message))
	}
	if len(a.attempts) == 0 && a.Failure != nil {
		lines = append(lines, fmt.Sprintf(form, a.Failure.Code, a.Failure.Message))
	}
	if len(a.Invalid) > 0 {
		lines = append(lines, fmt.Sprintf("invalid ECS instances %q are ignored.", a.Invalid))
	}
	if len(a.Created) > 0 {
		lines = append(lines, fmt.Sprintf("new ECS instances %q are created.", MemberIDs(a.Created)))
	}
	if len(a.Removed) > 0 {
		lines = append(lines, fmt.Sprintf("ECS instances %q are released.", a.Removed))
	}
	return strings.Join(lines, " ")
}

// MemberIDs returns the IDs of the members.
func MemberIDs(members []*Member) (ids []string) {
	for _, i := range members {
		ids = append(ids, i.ID)
	}
	return ids
}
