package app

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestOwnerIsKnownThoughTheFirstReadsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		refusals int
		known    bool
	}{
		"none":                  {known: true},
		"the first ones":        {refusals: 3, known: true},
		"all, for want of RBAC": {refusals: 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "0123456789"}})
				left := test.refusals
				client.PrependReactor("list", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
					left--
					return left >= 0, nil, apierrors.NewForbidden(corev1.Resource("namespaces"), "", nil)
				})
				config := candidate(client, "a")
				config.Kube = client
				found := owner(t.Context(), config)
				if !test.known {
					assert.Empty(t, found)
					return
				}
				assert.Equal(t, "01234567/"+config.LeaderElection.ResourceNamespace+"/"+config.LeaderElection.ResourceName, found)
			})
		})
	}
}
