// Package records names the directory in which the end-to-end tests record what they used: each process, control plane and
// cloud writes files of its own there, and test/grants reads them all.
package records

import (
	"fmt"
	"os"
)

// Variable names the environment variable with the directory; without it nothing is recorded. A new directory for each run makes
// Go's test cache run the tests again that record, and no others: the value is part of what their result depends on.
const Variable = "E2E_RECORDS"

// Kinds of records, as patterns of their files' names.
const (
	// AuditLogs are API servers' audit logs: a JSON Event of audit.k8s.io/v1 a line.
	AuditLogs = "rbac-*.log"
	// Permissions are JSON lists of what a RAM policy allowed and clients made use of, such as "ess:RemoveInstances".
	Permissions = "ram-*.json"
)

// Directory is where to record; empty for nowhere.
func Directory() string { return os.Getenv(Variable) }

// Create makes a file of the kind in the directory.
func Create(directory, kind string) (*os.File, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("record what is used: %w", err)
	}
	file, err := os.CreateTemp(directory, kind)
	if err != nil {
		return nil, fmt.Errorf("record what is used: %w", err)
	}
	return file, nil
}
