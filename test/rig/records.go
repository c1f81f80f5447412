package rig

import (
	"encoding/json"

	"gpu-spot-autoscaler/test/records"
)

// audited are the users whose requests are recorded: the ServiceAccounts of the shipped manifests.
var audited = []string{
	"system:serviceaccount:" + Namespace + ":" + ServiceAccount,
	"system:serviceaccount:" + Namespace + ":" + ServiceAccount + "-node-agent",
}

// auditLog makes the file in which the API server is to record requests, if any are to be recorded.
func (r *Rig) auditLog() (path string, err error) {
	if r.records == "" {
		return "", nil
	}
	file, err := records.Create(r.records, records.AuditLogs)
	if err != nil {
		return "", err
	}
	return file.Name(), file.Close()
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
