package alisim

import (
	"fmt"
	"time"
)

// How Alibaba prints times: most of them to the minute.
const (
	minuteLayout = "2006-01-02T15:04Z"
	secondLayout = "2006-01-02T15:04:05Z"
)

func optionalTime(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(layout)
}

// token names the last item of a page.
func token(last interface{ ordinal() uint64 }) string { return fmt.Sprintf("%016x", last.ordinal()) }

// parseToken is the reverse; no token is the place before the first item.
func parseToken(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	var ordinal uint64
	if _, err := fmt.Sscanf(text, "%016x", &ordinal); err != nil || len(text) != 16 {
		return 0, invalid("NextToken", text)
	}
	return ordinal, nil
}
