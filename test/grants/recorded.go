package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"gpu-spot-autoscaler/test/records"
)

// usage is what the end-to-end tests' processes did with their rights.
type usage struct {
	// count is how many requests used a grant. Of the RAM policy it is how many simulated clouds saw it used.
	count map[grant]int
	// refused are the requests that no role allowed.
	refused map[string]bool
}

// report lists all grants, with how often each was used, and what was refused.
func (u usage) report(out io.Writer, granted []grant) error {
	var errs []error
	for _, g := range granted {
		_, err := fmt.Fprintf(out, "%8d  %s\n", u.count[g], g)
		errs = append(errs, err)
	}
	for _, request := range slices.Sorted(maps.Keys(u.refused)) {
		_, err := fmt.Fprintf(out, " refused  %s\n", request)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// recorded reads all records below the directory.
func recorded(directory string) (usage, error) {
	u := usage{count: map[grant]int{}, refused: map[string]bool{}}
	logs, lists := 0, 0
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := entry.Name(); {
		case matches(records.AuditLogs, name):
			logs++
			err = u.readAuditLog(path)
		case matches(records.Permissions, name):
			lists++
			err = u.readPermissions(path)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	})
	if err == nil && (logs == 0 || lists == 0) {
		err = fmt.Errorf("%s has no records", directory)
	}
	if err != nil {
		return u, fmt.Errorf("what the end-to-end tests used is not known; make test-e2e records it: %w", err)
	}
	return u, nil
}

func matches(pattern, name string) bool {
	matched, err := filepath.Match(pattern, name)
	return err == nil && matched
}

func (u usage) readPermissions(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var permissions []string
	if err := json.Unmarshal(text, &permissions); err != nil {
		return err
	}
	for _, permission := range permissions {
		u.count[grant{byRAM, permission}]++
	}
	return nil
}

func (u usage) readAuditLog(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	for decoder := json.NewDecoder(file); ; {
		var event auditv1.Event
		switch err := decoder.Decode(&event); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := u.add(&event); err != nil {
			return err
		}
	}
}

// testAgent is the beginning of what a client in a test calls itself, which client-go takes from the name of the binary.
// Some tests act in the autoscaler's name, as a thief of its token would: what they do it does not do.
var testAgent = regexp.MustCompile(`^[\w.-]+\.test/`)

// allowedBy is what the RBAC authorizer says of a request that it allows.
// Source: String of clusterRoleBindingDescriber and roleBindingDescriber, k8s.io/kubernetes/pkg/registry/rbac/validation.
var allowedBy = regexp.MustCompile(`^RBAC: allowed by (?:Cluster)?RoleBinding "[^"]*" of (ClusterRole|Role) "([^"]*)" to `)

func (u usage) add(event *auditv1.Event) error {
	what := event.ObjectRef
	if what == nil || testAgent.MatchString(event.UserAgent) {
		return nil
	}
	resource := strings.TrimSuffix(what.Resource+"/"+what.Subresource, "/")
	if event.Annotations["authorization.k8s.io/decision"] != "allow" {
		// The name of what was made is often random.
		u.refused[fmt.Sprintf("%s may not %s", event.User.Username, describe(event.Verb, resource, what.APIGroup, ""))] = true
		return nil
	}
	reason := event.Annotations["authorization.k8s.io/reason"]
	by := allowedBy.FindStringSubmatch(reason)
	if by == nil {
		return fmt.Errorf("cannot tell which role allowed request %s: %q", event.AuditID, reason)
	}
	role := by[1] + " " + by[2]
	for _, g := range []string{anything, describe(event.Verb, resource, what.APIGroup, "")} {
		u.count[grant{role, g}]++
	}
	if what.Name != "" {
		u.count[grant{role, describe(event.Verb, resource, what.APIGroup, what.Name)}]++
	}
	return nil
}
