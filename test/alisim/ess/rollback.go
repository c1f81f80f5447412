package ess

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
func (a *activity) rollBack() {
	s := a.group.scaling
	count := 0
	if a.failure != nil && !a.aged {
		switch s.cloud.Temper.RollBack {
		case temper.RollBackSome:
			count = (len(a.created) + 1) / 2
		case temper.RollBackAll:
			count = len(a.created)
		}
	}
	if forced := a.purchase.rollBack; forced != nil {
		count = max(count, min(forced.Count, len(a.created)))
		if a.failure == nil && count > 0 {
			a.failure = protocol.Fail(cmp.Or(forced.Code, codeRolledBack), "%d instances could not be added to the scaling group.", count)
		}
	}
	listed := func(i *member) int {
		if _, is := s.listedBy[i.ID]; is {
			return 0
		}
		return 1
	}
	created := slices.SortedStableFunc(slices.Values(a.created), func(x, y *member) int { return cmp.Compare(listed(x), listed(y)) })
	for _, i := range created[:count] {
		a.rolledBack = append(a.rolledBack, i.ID)
		s.compute.Release(i.Instance)
		i.detach()
	}
	a.created = created[count:]
}

// Texts in which a failure stands where it has no field of its own.
const (
	failedToCreate = `Fail to create Instances into scaling group(code:"%s", msg:"%s")`
	failedToRemove = `Fail to remove Instances from scaling group(code:"%s", msg:"%s")`
)

// detail is the activity's story in words: what went wrong, once for each attempt, else what came of it.
func (a *activity) detail() string {
	var lines []string
	form := failedToCreate
	if len(a.victims) > 0 {
		form = failedToRemove
	}
	for _, why := range a.attempts {
		lines = append(lines, fmt.Sprintf(form, why.Code, why.Message))
	}
	if len(a.attempts) == 0 && a.failure != nil {
		lines = append(lines, fmt.Sprintf(form, a.failure.Code, a.failure.Message))
	}
	if len(a.invalid) > 0 {
		lines = append(lines, fmt.Sprintf("invalid ECS instances %q are ignored.", a.invalid))
	}
	if len(a.created) > 0 {
		lines = append(lines, fmt.Sprintf("new ECS instances %q are created.", idsOf(a.created)))
	}
	if len(a.removed) > 0 {
		lines = append(lines, fmt.Sprintf("ECS instances %q are released.", a.removed))
	}
	return strings.Join(lines, " ")
}

func idsOf(members []*member) (ids []string) {
	for _, i := range members {
		ids = append(ids, i.ID)
	}
	return ids
}
