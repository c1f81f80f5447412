package reclaim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheCloudIsAskedAsOftenAsThereIsSomethingToLose(t *testing.T) {
	labelled := func(key, value string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Labels = map[string]string{key: value} }
	}
	aged := func(age time.Duration) func(*corev1.Node) {
		return func(node *corev1.Node) { node.CreationTimestamp = metav1.NewTime(time.Now().Add(-age)) }
	}
	young := aged(time.Minute)
	for name, tc := range map[string]struct {
		node     []func(*corev1.Node)
		reclaim  string
		requests int
		want     time.Duration
	}{
		"spot":                         {[]func(*corev1.Node){young, labelled("node.alibabacloud.com/spot-strategy", "SpotAsPriceGo")}, "", 1, 2 * time.Second},
		"spot, by our label":           {[]func(*corev1.Node){young, labelled("gpu-spot.autoscaling/purchase-option", "spot")}, "", 1, 2 * time.Second},
		"perhaps spot":                 {[]func(*corev1.Node){young}, "", 1, 2 * time.Second},
		"on-demand":                    {[]func(*corev1.Node){young, labelled("node.alibabacloud.com/spot-strategy", "NoSpot")}, "", 1, 10 * time.Second},
		"on-demand, by our label":      {[]func(*corev1.Node){young, labelled("gpu-spot.autoscaling/purchase-option", "on-demand")}, "", 1, 10 * time.Second},
		"of another cloud":             {[]func(*corev1.Node){young, func(node *corev1.Node) { node.Spec.ProviderID = "kind://a" }}, "", 1, 10 * time.Second},
		"of another region":            {[]func(*corev1.Node){young, func(node *corev1.Node) { node.Spec.ProviderID = "cn-shanghai.i-a" }}, "", 1, 10 * time.Second},
		"about to lose its protection": {[]func(*corev1.Node){aged(59 * time.Minute)}, "", 1, 2 * time.Second},
		"just unprotected":             {[]func(*corev1.Node){aged(61 * time.Minute)}, "", 1, time.Second},
		"long unprotected":             {[]func(*corev1.Node){aged(71 * time.Minute)}, "", 1, 2 * time.Second},
		"a reclaim is under way":       {[]func(*corev1.Node){young}, "a", 1, time.Second},
		"a reclaim elsewhere":          {[]func(*corev1.Node){young}, "foreign", 1, 2 * time.Second},
		"a thousand are":               {[]func(*corev1.Node){young}, "a", 10, 2 * time.Second},
		"ten thousand are":             {[]func(*corev1.Node){young}, "a", 100, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			story(t, func(w *world) {
				w.pass(24 * time.Hour)
				w.addNode("a", tc.node...)
				if tc.reclaim != "" {
					w.cloud.reclaim(tc.reclaim)
				}
				w.start(func(c *Config) { c.Region = "cn-beijing" })
				assert.Equal(t, tc.want, w.controller.pause(tc.requests))
			})
		})
	}
}

func TestAPollCountsItsRequests(t *testing.T) {
	for listed, want := range map[int]int{0: 2, 1: 1, 100: 1, 101: 2, 1000: 10} {
		story(t, func(w *world) {
			for i := range listed {
				w.cloud.reclaim(string(rune('a'+i%26)) + time.Duration(i).String())
			}
			w.start(func(c *Config) { c.PollInterval = time.Hour })
			requests, err := w.controller.poll(w.Context())
			assert.NoError(t, err)
			assert.Equal(t, want, requests, "%d listed", listed)
		})
	}
}
