package market

import (
	"slices"
	"strings"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// hint is what is said of the stock of an offering: by ECS its category, by ESS its strength, each empty where nothing is.
type hint struct {
	category alicloud.StockCategory
	strength alicloud.Strength
}

// parts returns the hint, and each of its two words alone if it has both.
func (h hint) parts() []hint {
	switch {
	case h == hint{}:
		return nil
	case h.category == "" || h.strength == "":
		return []hint{h}
	}
	return []hint{h, {category: h.category}, {strength: h.strength}}
}

// isKnown returns whether all words of the hint are known, and there is one.
func (h hint) isKnown() bool {
	return h != hint{} && (h.category == "" || slices.Contains(alicloud.StockCategories, h.category)) &&
		(h.strength == "" || slices.Contains(alicloud.Strengths, h.strength))
}

// MarshalText implements encoding.TextMarshaler. A category alone is written as it is.
func (h hint) MarshalText() ([]byte, error) {
	if h.strength == "" {
		return []byte(h.category), nil
	}
	return []byte(string(h.category) + "/" + string(h.strength)), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hint) UnmarshalText(text []byte) error {
	category, strength, _ := strings.Cut(string(text), "/")
	*h = hint{alicloud.StockCategory(category), alicloud.Strength(strength)}
	return nil
}

// saying is what ECS and ESS say of an offering. A word that was never said is empty, and so are its times.
type saying struct {
	Category alicloud.StockCategory `json:"category"`
	// Since is when the category was first said, At when last, in Unix seconds.
	Since    int64             `json:"since"`
	At       int64             `json:"at"`
	Strength alicloud.Strength `json:"strength,omitempty"`
	// StrengthSince and StrengthAt are the same of the strength. Each word has its own times, so that one does not hide how long the other is said.
	StrengthSince int64 `json:"strengthSince,omitempty"`
	StrengthAt    int64 `json:"strengthAt,omitempty"`
	// asked is what was said when instances were asked for last.
	asked hint
}

// current returns what is said now. What was said too long ago is left out.
func (s *saying) current(now int64) (h hint) {
	if isFresh(s.At, now) {
		h.category = s.Category
	}
	if isFresh(s.StrengthAt, now) {
		h.strength = s.Strength
	}
	return h
}

// since returns since when the category is said that is said now. It is since when the strength is where nothing is said of the category: a strength
// that changes beside a category makes nobody forget a refusal.
func (s *saying) since(now int64) int64 {
	if s.current(now).category != "" {
		return s.Since
	}
	return s.StrengthSince
}

// withKnownWords returns the saying without the words that are not known.
func (s saying) withKnownWords() saying {
	if !(hint{category: s.Category}).isKnown() {
		s.Category, s.Since, s.At = "", 0, 0
	}
	if !(hint{strength: s.Strength}).isKnown() {
		s.Strength, s.StrengthSince, s.StrengthAt = "", 0, 0
	}
	return s
}

// isStronger returns whether a strength is above another. An empty one is below all others.
func isStronger(a, b alicloud.Strength) bool {
	return a != "" && (b == "" || slices.Index(alicloud.Strengths, a) < slices.Index(alicloud.Strengths, b))
}

// last returns when anything was said last.
func (s *saying) last() int64 { return max(s.At, s.StrengthAt) }

func isFresh(at, now int64) bool { return now-at <= int64(stockFresh/time.Second) }

// repeat returns since when a word is said that is said now, given whether it is the same as the last, and since and at when that was said.
func repeat(isSame bool, since, at, now int64) int64 {
	if isSame && isFresh(at, now) {
		return since
	}
	return now
}
