// Package temper says how hard a simulated cloud is on its clients, rule by rule. Strict is the worst that Alibaba's
// documents allow, Lenient the kindest.
package temper

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"time"
)

// Bases.
const (
	StrictBase  = "strict"
	LenientBase = "lenient"
)

// Default is the base of a world that names none.
const Default = StrictBase

// Strict is the worst that the documents allow, and what they leave open decided against the client, save that
// targeting is honoured and plans are known: a cloud without them is a different road, not a harder one.
func Strict() Rules {
	return Rules{
		Base:     StrictBase,
		RollBack: RollBackSome, RolledBackStayNamed: true, CodesInText: true, OldestFirst: true, OneAtATime: true, LoseNoteOf: 4, NotesHoldStrings: true,
		ForgetTokens: true, SlotBeforeToken: true,
		RefuseNoChange: true, Expectation: true, PolicyDecides: true,
		ListLags: true, BareNewcomers: true, LaunchLags: true, VanishOneIn: 40, EntrustedOnly: true,
		PendingStay: true, WarnOfInvalid: true, AwaitStop: true, HangOneIn: 10, StayOneIn: 10,
		RecyclingIsStopped: true, LockReason: "recycling",
		NodeController: true,
	}
}

// Lenient is the kindest cloud: no rule holds.
func Lenient() Rules { return Rules{Base: LenientBase} }

// Of returns the rules of a base; the empty one is Default.
func Of(base string) (Rules, error) {
	switch base {
	case "":
		return Of(Default)
	case StrictBase:
		return Strict(), nil
	case LenientBase:
		return Lenient(), nil
	}
	return Rules{}, fmt.Errorf("unknown temper %q", base)
}

// OrDefault returns the rules, those of Default where they are the zero value.
func (r Rules) OrDefault() Rules {
	if r.Base == "" {
		r, _ = Of(Default)
	}
	return r
}

// IsStrict says whether the base is Strict.
func (r Rules) IsStrict() bool { return r.Base == StrictBase }

// Validate refuses values that no rule has.
func (r Rules) Validate() error {
	if _, err := Of(r.Base); err != nil {
		return err
	}
	if r.Base == "" && r != (Rules{}) {
		return fmt.Errorf("rules without a base")
	}
	switch r.RollBack {
	case RollBackNone, RollBackSome, RollBackAll:
	default:
		return fmt.Errorf("unknown rollBack %q", r.RollBack)
	}
	switch r.Targeting {
	case TargetingHonoured, TargetingIgnored, TargetingRefused:
	default:
		return fmt.Errorf("unknown targeting %q", r.Targeting)
	}
	for name, n := range map[string]int{"loseNoteOf": r.LoseNoteOf, "hangOneIn": r.HangOneIn, "stayOneIn": r.StayOneIn, "vanishOneIn": r.VanishOneIn} {
		if n < 0 {
			return fmt.Errorf("%s is %d", name, n)
		}
	}
	if r.WrongStockPercent < 0 || r.WrongStockPercent > 100 {
		return fmt.Errorf("wrongStockPercent is %d", r.WrongStockPercent)
	}
	return nil
}

// UnmarshalJSON reads the name of a base, "strict", or a base with overrides of single rules,
// {"base": "strict", "oneAtATime": false}.
func (r *Rules) UnmarshalJSON(text []byte) error {
	var base string
	if json.Unmarshal(text, &base) == nil {
		rules, err := Of(base)
		*r = rules
		return err
	}
	var named struct{ Base string }
	if err := json.Unmarshal(text, &named); err != nil {
		return fmt.Errorf("temper is a name or an object: %w", err)
	}
	rules, err := Of(named.Base)
	if err != nil {
		return err
	}
	type plain Rules // without this method
	over := plain(rules)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&over); err != nil {
		return fmt.Errorf("temper: %w", err)
	}
	*r = Rules(over)
	r.Base = rules.Base
	return nil
}

// IsWrongAbout returns whether the action answers wrongly about the stock of the type in the zone in this minute. Each action errs in its own cases.
func (r Rules) IsWrongAbout(action, instanceType, zone string, now time.Time) bool {
	hash := fnv.New32a()
	fmt.Fprintf(hash, "%s/%s/%s/%d", action, instanceType, zone, now.Unix()/60)
	return int(hash.Sum32()%100) < r.WrongStockPercent
}
