package kubelet

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

func TestSelectionFollowsTheAnnotation(t *testing.T) {
	ours, other := node("n", nodeFake), node("n", "")
	tests := map[string]struct {
		known     bool // the Node was ours before the event
		event     watch.Event
		wantType  watch.EventType // "" if kwok is not to see the event
		wantAlive bool
	}{
		"a new Node of ours":                    {false, watch.Event{Type: watch.Added, Object: ours}, watch.Added, true},
		"a new Node of somebody else":           {false, watch.Event{Type: watch.Added, Object: other}, "", false},
		"a Node of ours changes":                {true, watch.Event{Type: watch.Modified, Object: ours}, watch.Modified, true},
		"a Node becomes ours":                   {false, watch.Event{Type: watch.Modified, Object: ours}, watch.Modified, true},
		"a Node of ours falls silent":           {true, watch.Event{Type: watch.Modified, Object: other}, watch.Deleted, false},
		"a Node of somebody else changes":       {false, watch.Event{Type: watch.Modified, Object: other}, "", false},
		"a Node of ours is deleted":             {true, watch.Event{Type: watch.Deleted, Object: ours}, watch.Deleted, false},
		"a silent Node is deleted":              {false, watch.Event{Type: watch.Deleted, Object: other}, "", false},
		"a bookmark":                            {true, watch.Event{Type: watch.Bookmark, Object: other}, watch.Bookmark, true},
		"silence and deletion seen as one":      {true, watch.Event{Type: watch.Deleted, Object: other}, watch.Deleted, false},
		"an error, which is not about any Node": {true, watch.Event{Type: watch.Error, Object: &metav1.Status{}}, watch.Error, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSelection()
			if test.known {
				s.names.Insert("n")
			}
			got, keep := s.follow(test.event)
			require.Equal(t, test.wantType != "", keep)
			if keep {
				require.Equal(t, test.wantType, got.Type)
			}
			if got.Type == watch.Deleted && keep {
				require.True(t, fake(got.Object.(*corev1.Node)), "kwok must recognise what it loses")
			}
			_, err := s.alive("n")
			require.Equal(t, test.wantAlive, err == nil)
		})
	}
	require.False(t, fake(other), "an object of the watch was changed")
}

func TestSelectionTakesOverALists(t *testing.T) {
	tests := map[string]struct {
		complete bool
		want     []string
	}{
		"a complete list forgets what is not in it": {true, []string{"new"}},
		"a page adds to what is known":              {false, []string{"new", "old"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSelection()
			s.names.Insert("old")
			list := &corev1.NodeList{Items: []corev1.Node{*node("new", nodeFake), *node("other", "")}}
			s.replace(list, test.complete)
			require.ElementsMatch(t, test.want, s.names.UnsortedList())
			require.Len(t, list.Items, 1)
		})
	}
}

func node(name, annotation string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if annotation != "" {
		n.Annotations = map[string]string{nodeAnnotation: annotation}
	}
	return n
}
