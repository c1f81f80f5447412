package ledger

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// book holds the purchases of one pool, by client token.
type book map[string]*Purchase

func (b book) add(p *Purchase) { b[p.request.ClientToken] = p }

// has returns whether the purchase is in the book. It is not any more if it is over, or is part of another one again.
func (b book) has(p *Purchase) bool { return b[p.request.ClientToken] == p }

// resign gives the purchase a new token.
func (b book) resign(p *Purchase) {
	delete(b, p.request.ClientToken)
	p.sign()
	b.add(p)
}

// split leaves one instance in the purchase and adds a purchase for the rest.
func (b book) split(p *Purchase) {
	rest := *p
	rest.request.Delta, rest.delivery = p.request.Delta-1, newDelivery()
	rest.sign()
	b.add(&rest)
	p.request.Delta = 1
	b.resign(p)
	p.rest = rest.request.ClientToken
}

// rejoin undoes split, unless the rest was sent: it may have been bought also if the answer was lost.
func (b book) rejoin(p *Purchase) {
	if rest := b[p.rest]; rest != nil && rest.queued() && !rest.sending && !rest.attempts.uncertain {
		p.request.Delta += rest.missing()
		delete(b, p.rest)
	}
	p.rest = ""
}

// filter returns the purchases for which the condition holds, oldest first.
func (b book) filter(holds func(*Purchase) bool) []*Purchase {
	var found []*Purchase
	for _, p := range b {
		if holds(p) {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, byAge)
	return found
}

// joinable returns the latest purchase that the new one can become a part of: it is for the same offering, waits for its turn and
// cannot have been carried out. It returns nil if there is none. That saves a turn: a busy scaling group takes one purchase at a
// time, and each may keep it busy for a minute. The purchase that checks the pool's targeting, whose token is check, and the one
// that was split off from it are left out.
func (b book) joinable(added *Purchase, check string) *Purchase {
	joinable := b.filter(func(p *Purchase) bool {
		isSame := p.offering == added.offering && p.targeting == added.targeting && p.configuration == added.configuration &&
			p.forGangs() == added.forGangs() && p.restored == nil
		hasRoom := p.request.Delta+added.request.Delta <= alicloud.MaxScale && (!p.forGangs() || check == "" && p.hasRoomForGang(added.requested))
		isUntouched := p.queued() && p.missing() == p.request.Delta && !p.sending && !p.attempts.uncertain && p.attempts.refusal == nil
		isOfCheck := p.request.ClientToken == check || b[check] != nil && b[check].rest == p.request.ClientToken
		return isSame && hasRoom && isUntouched && !p.plan && !isOfCheck
	})
	if len(joinable) == 0 {
		return nil
	}
	return joinable[len(joinable)-1]
}

// join makes the new purchase a part of the other one.
func (b book) join(p, added *Purchase) {
	if p.atomic {
		p.gangs, p.atomic = []int{p.request.Delta}, false
	}
	if added.atomic {
		p.gangs = append(p.gangs, added.request.Delta)
	}
	p.request.Delta += added.request.Delta
	p.attempts.instancesBefore = added.attempts.instancesBefore
	b.resign(p)
}

func byAge(a, b *Purchase) int {
	return cmp.Or(a.requested.Compare(b.requested), strings.Compare(a.request.ClientToken, b.request.ClientToken))
}

// awaitsDelivery returns whether the cloud accepted a purchase of which instances are still missing.
func (b book) awaitsDelivery() bool {
	for _, p := range b {
		if !p.accepted.IsZero() && p.missing() > 0 {
			return true
		}
	}
	return false
}

// owns returns whether the activity is that of a purchase in the book.
func (b book) owns(activity alicloud.Activity) bool {
	if note, noted := NoteOf(activity); noted && b[note.Token] != nil {
		return true
	}
	for _, p := range b {
		if p.activityID == activity.ID {
			return true
		}
	}
	return false
}

// instancesOfOthers returns the instances that were delivered for other purchases than this one.
func (b book) instancesOfOthers(p *Purchase, createdBy map[string][]string) sets.Set[string] {
	owned := sets.New[string]()
	for _, other := range b {
		if other != p {
			owned = owned.Union(other.delivery.delivered).Insert(createdBy[other.activityID]...)
		}
	}
	return owned
}

// claimActivity takes the activity of this purchase, which the cloud named, from another purchase that it was attributed to
// because it resembled it.
func (b book) claimActivity(p *Purchase) {
	for _, other := range b {
		if other != p && other.activityID == p.activityID && other.activityID != "" && other.attempts.uncertain {
			other.activityID, other.accepted, other.delivery = "", time.Time{}, newDelivery()
		}
	}
}
