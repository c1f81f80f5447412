package rig

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"gpu-spot-autoscaler/test/records"
)

// audited are the users whose requests are recorded: the ServiceAccounts of the shipped manifests.
var audited = []string{
	"system:serviceaccount:" + Namespace + ":" + ServiceAccount,
	"system:serviceaccount:" + Namespace + ":" + ServiceAccount + "-node-agent",
}

// createAuditLog makes the file in which the API server is to record requests, if any are to be recorded.
func createAuditLog(r *Rig) (path string, err error) {
	if r.records == "" {
		if len(r.AuditUsers) == 0 {
			return "", nil
		}
		return filepath.Join(r.Dir, "audit.log"), nil
	}
	file, err := records.Create(r.records, records.AuditLogs)
	if err != nil {
		return "", err
	}
	return file.Name(), file.Close()
}

// Audit returns the requests of the user that the API server has recorded, without their bodies. The user is one of AuditUsers.
func (r *Rig) Audit(user string) (requests []auditv1.Event, err error) {
	file, err := os.Open(r.auditLog)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for decoder := json.NewDecoder(file); ; {
		var request auditv1.Event
		switch err := decoder.Decode(&request); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the last line is being written
			return requests, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", r.auditLog, err)
		case request.User.Username == user:
			requests = append(requests, request)
		}
	}
}

// endCloud ends the cloud, if there is one, and records what it saw used.
func (r *Rig) endCloud() error {
	if r.Cloud == nil {
		return nil
	}
	r.Cloud.Stop()
	if r.records == "" {
		return nil
	}
	file, err := records.Create(r.records, records.Permissions)
	if err != nil {
		return err
	}
	defer file.Close()
	return json.NewEncoder(file).Encode(r.Cloud.PermissionsUsed())
}
