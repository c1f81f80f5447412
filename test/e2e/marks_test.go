package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/rig"
	"gpu-spot-autoscaler/test/standin"
)

// The tenant may do anything to the jobs of the namespace; who restores jobs may override the marks beside.
const tenants = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: tenant}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: tenant}, {apiGroup: rbac.authorization.k8s.io, kind: User, name: restorer}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: restorer}
rules:
- {apiGroups: [gpu-spot.autoscaling], resources: [heldmarks], verbs: [override]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: restorer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: restorer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: restorer}]
`

// clientOf is a client of the user.
func clientOf(s *jobSuite, user string) dynamic.Interface {
	s.t.Helper()
	config := rest.CopyConfig(s.Cluster.AdminConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:authenticated"}}
	client, err := dynamic.NewForConfig(config)
	require.NoError(s.t, err)
	return client
}

// TestMarksThatKubeRayCopiesAreLetThroughAndMeanNothing: it gives the cluster of a RayJob all labels and annotations of that, and
// an owner who resumes one that is held does not take the marks off first.
func TestMarksThatKubeRayCopiesAreLetThroughAndMeanNothing(t *testing.T) {
	rig.Long(t)
	s := newJobSuiteWithoutAutoscaler(t, newWorld())
	require.NoError(t, operators.Install(t.Context(), operators.KubeRay, s.Cluster))
	s.submit(tenants)
	const (
		marks = `labels: {gpu-spot.autoscaling/held: suspended}, annotations: {gpu-spot.autoscaling/held-replicas: "300000"}`
		spec  = `{headGroupSpec: {rayStartParams: {}, template: {spec: {containers: [{name: ray, image: ray}]}}}}`
	)
	cluster := func(name, metadata string) attempt {
		return attempt{
			of: operators.RayClusters, namespace: metav1.NamespaceDefault,
			create: `{apiVersion: ray.io/v1, kind: RayCluster, metadata: {name: ` + name + `, ` + marks + metadata + `}, spec: ` + spec + `}`,
		}
	}
	s.submit(`{apiVersion: ray.io/v1, kind: RayJob, metadata: {name: train}, spec: {rayClusterSpec: ` + spec + `}}`)
	owner, err := s.getObject(t.Context(), operators.RayJobs, "train") // the garbage collector takes what is of an owner that is not there
	require.NoError(t, err)
	ownedBy := func(version, kind string) string {
		return `, ownerReferences: [{apiVersion: ` + version + `, kind: ` + kind + `, name: train, uid: ` + string(owner.GetUID()) + `, controller: true}]`
	}
	tenant := clientOf(s, "tenant")
	assert.NoError(t, tryAttempt(s, tenant, cluster("copy", ownedBy("ray.io/v1", "RayJob"))))
	const refused = "only the autoscaler, and users who may override"
	assert.ErrorContains(t, tryAttempt(s, tenant, cluster("free", "")), refused)
	assert.ErrorContains(t, tryAttempt(s, tenant, cluster("served", ownedBy("ray.io/v1", "RayService"))), refused)
	assert.ErrorContains(t, tryAttempt(s, tenant, cluster("forged", ownedBy("example.org/v1", "RayJob"))), refused)

	s.submit(cluster("copy", ownedBy("ray.io/v1", "RayJob")).create)
	change := func(metadata string) error {
		return tryAttempt(s, tenant, attempt{of: operators.RayClusters, namespace: metav1.NamespaceDefault, name: "copy", patch: `{metadata: {` + metadata + `}}`})
	}
	assert.NoError(t, change(`labels: {theirs: "1"}`))
	assert.ErrorContains(t, change(`ownerReferences: null`), refused, "then they would count")
	assert.NoError(t, change(`ownerReferences: null, labels: {gpu-spot.autoscaling/held: null}, annotations: {gpu-spot.autoscaling/held-replicas: null}`))
}

func TestMarksOfHeldJobsAreSetByNobodyButTheAutoscaler(t *testing.T) {
	s := newJobSuiteWithoutAutoscaler(t, newWorld())
	operator, err := standin.NewETOperator(s.Cluster.AdminConfig())
	require.NoError(t, err)
	require.NoError(t, operator.Install(t.Context(), s.Cluster))
	s.submit(tenants)
	const (
		template = `template: {spec: {restartPolicy: Never, containers: [{name: main, image: train}]}}`
		marks    = `labels: {gpu-spot.autoscaling/held: suspended}, annotations: {gpu-spot.autoscaling/held-replicas: "2"}`
	)
	kinds := map[string]schema.GroupVersionResource{
		`{apiVersion: batch/v1, kind: Job, metadata: {name: NAME, MARKS}, spec: {suspend: true, ` + template + `}}`:                                                    batchJobs,
		`{apiVersion: kai.alibabacloud.com/v1alpha1, kind: TrainingJob, metadata: {name: NAME, MARKS}, spec: {etReplicaSpecs: {launcher: {}, worker: {replicas: 2}}}}`: standin.TrainingJobs,
	}
	for manifest, of := range kinds {
		plain := strings.ReplaceAll(strings.ReplaceAll(manifest, "NAME", "plain"), "MARKS", `labels: {theirs: "1"}`)
		s.submit(plain)
		held := strings.ReplaceAll(strings.ReplaceAll(manifest, "NAME", "held"), "MARKS", `labels: {theirs: "1"}`)
		s.submit(held)
		_, err := stolenTokenClient(s.suite).Resource(of).Namespace(metav1.NamespaceDefault).Patch(t.Context(), "held", types.MergePatchType, []byte(
			`{"metadata": {"labels": {"gpu-spot.autoscaling/held": "suspended"}, "annotations": {"gpu-spot.autoscaling/held-replicas": "2", "gpu-spot.autoscaling/held-reason": "reclaim"}}}`), metav1.PatchOptions{})
		require.NoError(t, err, "the autoscaler sets them")

		patch := func(name, metadata string, subresource ...string) attempt {
			return attempt{of: of, namespace: metav1.NamespaceDefault, name: name, subresource: subresource, patch: `{metadata: {` + metadata + `}}`}
		}
		restored := attempt{of: of, namespace: metav1.NamespaceDefault, create: strings.ReplaceAll(strings.ReplaceAll(manifest, "NAME", "new"), "MARKS", marks)}
		changes := map[string]attempt{
			"made with marks":            restored,
			"label added":                patch("plain", `labels: {gpu-spot.autoscaling/held: suspended}`),
			"label changed":              patch("held", `labels: {gpu-spot.autoscaling/held: shrunk}`),
			"number of workers added":    patch("plain", `annotations: {gpu-spot.autoscaling/held-replicas: "300000"}`),
			"number of workers changed":  patch("held", `annotations: {gpu-spot.autoscaling/held-replicas: "300000"}`),
			"parts of others added":      patch("held", `annotations: {gpu-spot.autoscaling/held-parts: job/theirs}`),
			"reason changed":             patch("held", `annotations: {gpu-spot.autoscaling/held-reason: max-wait}`),
			"stop added":                 patch("plain", `annotations: {gpu-spot.autoscaling/stop-requested: "2020-01-01T00:00:00Z"}`),
			"time added":                 patch("held", `annotations: {gpu-spot.autoscaling/held-since: "2020-01-01T00:00:00Z"}`),
			"one changed, another taken": patch("held", `labels: {gpu-spot.autoscaling/held: null}, annotations: {gpu-spot.autoscaling/held-replicas: "3"}`),
		}
		if of == batchJobs { // the status of others changes no metadata
			changes["added with the status"] = patch("plain", `labels: {gpu-spot.autoscaling/held: suspended}`, "status")
		}
		for what, a := range changes {
			err := tryAttempt(s, clientOf(s, "tenant"), a)
			assert.ErrorContains(t, err, "only the autoscaler, and users who may override heldmarks.gpu-spot.autoscaling", "%s: %s", of.Resource, what)
			assert.NoError(t, tryAttempt(s, clientOf(s, "restorer"), a), "%s: %s, by who may override", of.Resource, what)
			assert.NoError(t, tryAttempt(s, s.objects, a), "%s: %s, by the administrator", of.Resource, what)
		}
		for what, a := range map[string]attempt{
			"marks taken off":        patch("held", `labels: {gpu-spot.autoscaling/held: null}, annotations: {gpu-spot.autoscaling/held-replicas: null}`),
			"marks as they were":     patch("held", `labels: {theirs: "2", gpu-spot.autoscaling/held: suspended}, annotations: {gpu-spot.autoscaling/held-replicas: "2"}`),
			"what owners may say":    patch("plain", `annotations: {gpu-spot.autoscaling/max-wait: 30m}`),
			"a job without marks":    {of: of, namespace: metav1.NamespaceDefault, create: strings.ReplaceAll(strings.ReplaceAll(manifest, "NAME", "new"), "MARKS", `labels: {a: b}`)},
			"a job without anything": {of: of, namespace: metav1.NamespaceDefault, create: strings.ReplaceAll(strings.ReplaceAll(manifest, "NAME", "new"), ", MARKS", ``)},
		} {
			assert.NoError(t, tryAttempt(s, clientOf(s, "tenant"), a), "%s: %s", of.Resource, what)
		}
		carried, err := s.getObject(t.Context(), of, "held")
		require.NoError(t, err)
		carried.SetFinalizers([]string{"example.org/theirs"})
		_, err = clientOf(s, "tenant").Resource(of).Namespace(metav1.NamespaceDefault).Update(t.Context(), carried, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		assert.NoError(t, err, "%s: an update that carries them along", of.Resource)
	}
}
