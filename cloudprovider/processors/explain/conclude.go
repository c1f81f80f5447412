package explain

import (
	"fmt"
	"strings"

	"gpu-spot-autoscaler/cloudprovider/reasons"
)

// conclude sets the summary and the step.
func (x *Explanation) conclude() {
	if len(x.Reasons) > 0 && x.Reasons[0].Code != reasons.NotJudged {
		x.Summary, x.Step = sentence(x.Reasons[0].Message), x.Reasons[0].Mend
		if x.Reasons[0].Code != reasons.GangDoesNotFit {
			return
		}
	}
	if len(x.Offerings) == 0 {
		none := reasons.New(reasons.NoPools, "Tag a scaling group, or see the problems of the pools.", "there is no offering to buy from")
		x.Reasons = append(x.Reasons, none)
		x.Summary, x.Step = sentence(none.Message), none.Mend
		if len(x.Problems) > 0 && x.Problems[0].Mend != "" {
			x.Step = x.Problems[0].Mend
		}
		return
	}
	if x.Summary != "" {
		return
	}
	free, fitting := 0, 0
	for i := range x.Offerings {
		if x.Offerings[i].Fits {
			fitting++
		}
		if len(x.Offerings[i].Reasons) == 0 {
			free++
		}
	}
	best := &x.Offerings[0]
	switch {
	case free > 0:
		x.Summary, x.Step = fmt.Sprintf("An instance of %s can be bought for it.", best.ID), "Wait for the next loop; if nothing is bought then, see the Events of the autoscaler's Deployment."
	case fitting == 0:
		x.Summary = fmt.Sprintf("It fits none of the %d offerings: %s.", len(x.Offerings), unfit(best))
		x.Step = mendOf(best, reasons.DoesNotFit)
	default:
		x.Summary = fmt.Sprintf("It fits %d of %d offerings, and none of them can be bought now: %s (%s).", fitting, len(x.Offerings), messages(best.Reasons), best.ID)
		x.Step = strings.Join(mends(best.Reasons), " ")
	}
}

func unfit(o *Offering) string {
	for _, reason := range o.Reasons {
		if reason.Code == reasons.DoesNotFit {
			return reason.Message
		}
	}
	return messages(o.Reasons)
}

func mendOf(o *Offering, code reasons.Code) string {
	for _, reason := range o.Reasons {
		if reason.Code == code {
			return reason.Mend
		}
	}
	return ""
}

func mends(all []*reasons.Reason) (texts []string) {
	for _, reason := range all {
		if reason.Mend != "" {
			texts = append(texts, reason.Mend)
		}
	}
	return texts
}

func messages(all []*reasons.Reason) string {
	texts := make([]string, 0, len(all))
	for _, reason := range all {
		texts = append(texts, reason.Message)
	}
	return strings.Join(texts, "; ")
}

// sentence returns the text with a capital letter and a full stop.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
