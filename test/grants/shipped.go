package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/test/alisim/ram"
)

// grant is one thing that somebody may do: "delete nodes", by "ClusterRole gpu-spot-autoscaler".
type grant struct {
	By    string `json:"by"`
	Grant string `json:"grant"`
}

func (g grant) String() string { return fmt.Sprintf("%q of %s", g.Grant, g.By) }

const (
	byRAM = "RAM policy"
	// anything stands for all that a role grants whose rules are not shipped.
	anything = "anything"
)

// shipped lists what the directory's manifests grant to the ServiceAccounts of its pods, and what its RAM policies grant.
func shipped(deploy string) (granted []grant, err error) {
	paths, err := filepath.Glob(filepath.Join(deploy, "manifests", "*.yaml"))
	if err != nil {
		return nil, err
	}
	optional, err := filepath.Glob(filepath.Join(deploy, "manifests", "optional", "*.yaml"))
	if err != nil {
		return nil, err
	}
	m := manifests{rules: map[string][]rbacv1.PolicyRule{}, bound: map[string][]string{}}
	for _, path := range append(paths, optional...) {
		if err := m.read(path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	if granted, err = m.grants(); err != nil {
		return nil, err
	}
	policies, err := filepath.Glob(filepath.Join(deploy, "ram-policy*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range policies {
		document, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		policy, err := ram.Parse(document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		for _, action := range policy.Actions() {
			granted = append(granted, grant{byRAM, action})
		}
	}
	return granted, nil
}

// manifests are what of them says who may do what. Roles are known by kind and name, ServiceAccounts by name.
type manifests struct {
	rules map[string][]rbacv1.PolicyRule // of roles
	bound map[string][]string            // roles of ServiceAccounts
	run   []string                       // ServiceAccounts of pods
}

func (m *manifests) read(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	documents := utilyaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for buffer := make([]byte, len(text)+1); ; {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := m.add(buffer[:n]); err != nil {
			return err
		}
	}
}

// add takes in a document, of which it knows the fields that roles, bindings and the makers of pods have.
func (m *manifests) add(document []byte) error {
	var object struct {
		metav1.TypeMeta
		metav1.ObjectMeta `json:"metadata"`
		Rules             []rbacv1.PolicyRule `json:"rules"`
		RoleRef           rbacv1.RoleRef      `json:"roleRef"`
		Subjects          []rbacv1.Subject    `json:"subjects"`
		Spec              struct {
			Template corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(document, &object); err != nil {
		return err
	}
	switch object.Kind {
	case "ClusterRole", "Role":
		role := object.Kind + " " + object.Name
		m.rules[role] = append(m.rules[role], object.Rules...)
	case "ClusterRoleBinding", "RoleBinding":
		for _, subject := range object.Subjects {
			if subject.Kind == rbacv1.ServiceAccountKind {
				m.bound[subject.Name] = append(m.bound[subject.Name], object.RoleRef.Kind+" "+object.RoleRef.Name)
			}
		}
	case "Deployment", "DaemonSet":
		m.run = append(m.run, object.Spec.Template.Spec.ServiceAccountName)
	}
	return nil
}

func (m *manifests) grants() (granted []grant, err error) {
	roles := sets.New[string]()
	for _, account := range m.run {
		roles.Insert(m.bound[account]...)
	}
	for _, role := range sets.List(roles) {
		rules, known := m.rules[role]
		if !known {
			granted = append(granted, grant{role, anything})
		}
		for _, rule := range rules {
			for _, one := range validation.BreakdownRule(rule) {
				g, err := single(one)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", role, err)
				}
				granted = append(granted, grant{role, g})
			}
		}
	}
	return granted, nil
}

// single describes a rule with one verb, one resource and at most one name, or one path.
func single(rule rbacv1.PolicyRule) (string, error) {
	named := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs)
	if slices.ContainsFunc(named, func(word string) bool { return strings.Contains(word, "*") }) {
		return "", fmt.Errorf("a rule that cannot be compared with what was used: %v", rule)
	}
	if len(rule.NonResourceURLs) > 0 {
		return rule.Verbs[0] + " " + rule.NonResourceURLs[0], nil
	}
	name := ""
	if len(rule.ResourceNames) > 0 {
		name = rule.ResourceNames[0]
	}
	return describe(rule.Verbs[0], rule.Resources[0], rule.APIGroups[0], name), nil
}

// describe is how a grant reads: "patch trainingjobs/status in kai.alibabacloud.com", "get leases in coordination.k8s.io
// named gpu-spot-autoscaler". The resource may have a subresource.
func describe(verb, resource, group, name string) string {
	text := verb + " " + resource
	if group != "" {
		text += " in " + group
	}
	if name != "" {
		text += " named " + name
	}
	return text
}
