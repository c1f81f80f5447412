package app

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestALeaderThatMayNotListEndsWithAnError(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no role"))
	})
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().Nodes().Informer()
	ended := make(chan error, 1)
	go func() {
		ended <- whileListed(t.Context(), time.Second, []informers.SharedInformerFactory{factory}, func(context.Context) error {
			t.Error("the work begins without the nodes")
			return nil
		})
	}()
	select {
	case err := <-ended:
		assert.ErrorContains(t, err, "Node")
		assert.ErrorContains(t, err, "do the roles allow it?")
	case <-time.After(30 * time.Second):
		t.Fatal("still waits for its informers")
	}
}

func TestTheErrorOfTheLeadersWorkIsReturned(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	factory.Core().V1().Nodes().Informer()
	failure := errors.New("failure")
	assert.ErrorIs(t, whileListed(t.Context(), time.Minute, []informers.SharedInformerFactory{factory}, func(context.Context) error { return failure }), failure)
}
