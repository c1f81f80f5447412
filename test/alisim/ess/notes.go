package ess

import (
	"encoding/json"

	"gpu-spot-autoscaler/test/alisim/protocol"
)

// note is what is kept of the request's ActivityMetadata.
func (s *scalingActions) note(r *protocol.Request) string {
	text := r.Get("ActivityMetadata")
	if text == "" {
		return ""
	}
	rules := s.Cloud.Temper
	if s.noted++; rules.LoseNoteOf > 0 && s.noted%rules.LoseNoteOf == 0 {
		return ""
	}
	if rules.NotesHoldStrings {
		return onlyStrings(text)
	}
	return text
}

// onlyStrings returns the JSON object without the values that are no strings; nothing of what is no object.
func onlyStrings(text string) string {
	var all map[string]any
	if json.Unmarshal([]byte(text), &all) != nil {
		return ""
	}
	kept := map[string]string{}
	for key, value := range all {
		if s, is := value.(string); is {
			kept[key] = s
		}
	}
	if len(kept) == 0 {
		return ""
	}
	out, err := json.Marshal(kept)
	if err != nil {
		return "" // strings always marshal
	}
	return string(out)
}
