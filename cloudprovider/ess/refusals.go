package ess

import (
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// refusalStands is for how long it is told that an action is refused after the last try: whether it still is only another
// try can tell.
const refusalStands = 10 * time.Minute

// refusal is that the cloud does not let the credentials do something, whatever it is asked.
type refusal struct {
	alicloud.Diagnosis
	at time.Time
}

// refuse enters the refusal of a purchase or removal that somebody has to mend; other errors change nothing.
func (q *queue) refuse(err error, now time.Time) {
	if !alicloud.NeedsMending(err) {
		return
	}
	if q.refusals == nil {
		q.refusals = map[string]refusal{}
	}
	q.refusals[alicloud.ActionOf(err)] = refusal{alicloud.Diagnose(err), now}
}

// allow forgets that the action was refused.
func (q *queue) allow(action string) { delete(q.refusals, action) }

// noteRefusals enters what is refused as problems of the pool.
func (q *queue) noteRefusals(poolID string, now time.Time, problems map[problem]string) {
	causes := map[string][]string{}
	for action, r := range q.refusals {
		if now.Sub(r.at) > refusalStands {
			delete(q.refusals, action)
			continue
		}
		causes[string(r.Reason)] = append(causes[string(r.Reason)], r.Cause)
	}
	for reason, list := range causes {
		slices.Sort(list)
		problems[problem{poolID, reason}] = strings.Join(list, "; ")
	}
}
