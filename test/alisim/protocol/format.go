package protocol

import (
	"fmt"
	"time"
)

// How Alibaba prints times: most of them to the minute.
const (
	MinuteLayout = "2006-01-02T15:04Z"
	SecondLayout = "2006-01-02T15:04:05Z"
)

// OptionalTime prints a time, and nothing for the zero time.
func OptionalTime(t time.Time, layout string) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(layout)
}

// Token names the last item of a page.
func Token(last interface{ Ordinal() uint64 }) string { return fmt.Sprintf("%016x", last.Ordinal()) }

// ParseToken is the reverse; no token is the place before the first item.
func ParseToken(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	var ordinal uint64
	if _, err := fmt.Sscanf(text, "%016x", &ordinal); err != nil || len(text) != 16 {
		return 0, Invalid("NextToken", text)
	}
	return ordinal, nil
}
