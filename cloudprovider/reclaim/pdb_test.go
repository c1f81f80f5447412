package reclaim

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
)

const labelPDB = "pdb"

// guardedBy has the pdb of that name select the pod.
func guardedBy(pdb string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, labelPDB, pdb) }
}

// setPDB makes a PodDisruptionBudget or changes what it allows. Evictions of its pods are answered as by the API server, which
// counts them against the pdb.
func (w *world) setPDB(name string, allowed int32) {
	w.Helper()
	pdbs := w.client.PolicyV1().PodDisruptionBudgets("default")
	pdb, err := pdbs.Get(w.Context(), name, metav1.GetOptions{})
	if err == nil {
		pdb.Status.DisruptionsAllowed = allowed
		w.store(pdb)
		return
	}
	require.True(w, apierrors.IsNotFound(err))
	_, err = pdbs.Create(w.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name), ResourceVersion: "1"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelPDB: name}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}, metav1.CreateOptions{})
	require.NoError(w, err)
	w.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		pod, err := w.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), "default", eviction.Name)
		if err != nil || pod.(*corev1.Pod).Labels[labelPDB] != name {
			return false, nil, nil
		}
		object, err := w.client.Tracker().Get(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), "default", name)
		if err != nil {
			return false, nil, nil
		}
		pdb := object.(*policyv1.PodDisruptionBudget).DeepCopy()
		if pdb.Status.DisruptionsAllowed == 0 {
			return true, nil, refusedByPDB()
		}
		pdb.Status.DisruptionsAllowed--
		w.store(pdb)
		return false, nil, nil // w.evict goes on
	})
}

// store writes a new version of the pdb.
func (w *world) store(pdb *policyv1.PodDisruptionBudget) {
	w.Helper()
	version, err := strconv.Atoi(pdb.ResourceVersion)
	require.NoError(w, err)
	pdb.ResourceVersion = strconv.Itoa(version + 1)
	require.NoError(w, w.client.Tracker().Update(policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), pdb, "default"))
}

// refusedByPDB is the API server's answer. Source: createTooManyRequestsError in pkg/registry/core/pod/storage/eviction.go.
func refusedByPDB() error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause})
	return err
}

func TestAnEvictionThatFailsForAnotherReasonThanItsPDBIsRequestedAgainSoon(t *testing.T) {
	inBubble(t, func(w *world) {
		w.setPDB("train", 1)
		var evictions atomic.Int32
		w.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			isFirst := action.GetSubresource() == "eviction" && evictions.Add(1) == 1
			return isFirst, nil, apierrors.NewTooManyRequests("too many requests, please try again later", 1)
		})
		w.addNode("a")
		w.addPod("p", "a", guardedBy("train"))
		w.cloud.reclaim("a")
		w.start()
		w.pass(time.Second)
		assert.Empty(t, w.pods())
	})
}

func TestAPDBThatAllowsNothingIsSeldomAsked(t *testing.T) {
	inBubble(t, func(w *world) {
		w.setPDB("train", 0)
		w.addNode("a")
		for _, pod := range []string{"1", "2", "3"} {
			w.addPod(pod, "a", guardedBy("train"))
		}
		w.cloud.reclaim("a")
		w.start()
		w.pass(65 * time.Second)
		assert.Len(t, w.gone(), 3, "once each half minute, for all of its pods: the API server may know better")
		assert.Len(t, w.pods(), 3)
	})
}

func TestPodsLeaveAsSoonAsTheirPDBAllowsItOneByOne(t *testing.T) {
	inBubble(t, func(w *world) {
		w.setPDB("train", 1)
		for _, name := range []string{"a", "b", "c"} {
			w.addNode(name)
			w.addPod(name, name, guardedBy("train"))
		}
		w.cloud.reclaim("a", "b", "c")
		w.start()
		for left := 2; left > 0; left-- {
			require.Len(t, w.pods(), left)
			require.Len(t, w.gone(), 3-left, "no eviction was requested that is refused")
			w.pass(5 * time.Second)
			w.setPDB("train", 1) // another pod took its place
			w.pass(100 * time.Millisecond)
		}
		assert.Empty(t, w.pods())
		assert.Len(t, w.gone(), 3)
	})
}

func TestAPDBThatIsDeletedHoldsNobodyUp(t *testing.T) {
	inBubble(t, func(w *world) {
		w.setPDB("train", 0)
		w.addNode("a")
		w.addPod("p", "a", guardedBy("train"))
		w.cloud.reclaim("a")
		w.start()
		require.NoError(t, w.client.PolicyV1().PodDisruptionBudgets("default").Delete(w.Context(), "train", metav1.DeleteOptions{}))
		w.pass(slowestRetry)
		assert.Empty(t, w.pods())
	})
}

func TestAPodThatIsNotReadyIsEvictedWhateverItsPDBSays(t *testing.T) {
	inBubble(t, func(w *world) {
		w.setPDB("train", 0)
		w.addNode("a")
		w.addPod("broken", "a", guardedBy("train"), func(pod *corev1.Pod) {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		})
		w.cloud.reclaim("a")
		w.start()
		w.pass(time.Second)
		assert.NotEmpty(t, w.gone(), "the API server decides")
	})
}
