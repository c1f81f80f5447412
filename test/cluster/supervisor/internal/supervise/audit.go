package supervise

import (
	"encoding/json"
	"os"
)

const fileAuditPolicy = "audit-policy.json"

// writeAuditPolicy has what the audited users ask written down without its content, and nothing of what others do, so that
// the control plane has little more to do for it.
func (l layout) writeAuditPolicy() error {
	type rule struct {
		Level           string   `json:"level"`
		Users           []string `json:"users,omitempty"`
		NonResourceURLs []string `json:"nonResourceURLs,omitempty"`
	}
	policy, err := json.Marshal(map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
		"omitStages": []string{"RequestReceived"},
		"rules":      []rule{{Level: "None", NonResourceURLs: []string{"*"}}, {Level: "Metadata", Users: l.auditUsers}},
	})
	if err != nil {
		return err
	}
	return os.WriteFile(l.path(fileAuditPolicy), policy, 0o600)
}
