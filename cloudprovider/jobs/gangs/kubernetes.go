package gangs

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/jobs"
)

// kubernetesKinds are the pod groups of Kubernetes itself, which are there with the feature GenericWorkload: those of 1.37 and of 1.36.
// Each version of Kubernetes serves one of them. Source: scheduling/v1alpha2 of k8s.io/api 0.36.1 and scheduling/v1alpha3 of 0.37.0-beta.0.
var kubernetesKinds = []*podGroupKind{
	{resource: podGroups(schedulingv1.GroupName, "v1alpha3")},
	{resource: podGroups(schedulingv1.GroupName, "v1alpha2")},
}

// discoverAgain is how soon discovery that failed is tried again.
var discoverAgain = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 10, Cap: time.Minute}

// keepDiscovering finds out whether Kubernetes has pod groups, now and then again: an upgrade may bring them.
func (g *Gangs) keepDiscovering(ctx context.Context) {
	retry := discoverAgain
	for {
		pause := discoverEvery
		if err := g.discover(); err != nil {
			pause = retry.Step()
			klog.FromContext(ctx).Error(err, "Cannot find out whether Kubernetes has pod groups, will try again", "after", pause)
		} else {
			retry = discoverAgain
		}
		select {
		case <-g.config.Clock.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// discover finds out whether Kubernetes has pod groups. After an error, what was known before holds.
func (g *Gangs) discover() error {
	served, err := g.served()
	if err != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.objects.recordUndiscovered()
		return err
	}
	g.mu.Lock()
	isNew := g.objects.discovered(served)
	g.mu.Unlock()
	if isNew {
		g.config.Wake()
	}
	return nil
}

// served returns the pod groups that Kubernetes has, nil for none.
func (g *Gangs) served() (*podGroupKind, error) {
	var errs []error
	for _, kind := range kubernetesKinds {
		isServed, err := discovery.IsResourceEnabled(g.config.Discovery, kind.resource)
		if isServed {
			return kind, nil
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("discover %s: %w", kind.resource.GroupVersion(), err))
		}
	}
	return nil, errors.Join(errs...)
}

// readSchedulingGroup reads one of the pods of a controller. Its group is in a field that this build does not know (k8s.io/api 0.33), so
// that it is not on the pods that core has. The Job controller of Kubernetes 1.36.1 wants to make the group an owner of its pods as well
// (manageJob in pkg/controller/job/job_controller.go), but what makes pods of templates drops that (GetPodFromTemplate in
// pkg/controller/controller_utils.go).
func (g *Gangs) readSchedulingGroup(ctx context.Context, key key) (content, error) {
	g.mu.Lock()
	name := ""
	if object := g.objects.known[key]; object != nil {
		name = object.pod
	}
	g.mu.Unlock()
	if name == "" {
		return content{}, nil
	}
	object, err := g.config.Dynamic.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace(key.job.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return content{}, err
	}
	var pod struct {
		Spec struct {
			SchedulingGroup struct {
				PodGroupName string `json:"podGroupName"`
			} `json:"schedulingGroup"`
		} `json:"spec"`
	}
	if err := jobs.Decode(object, &pod); err != nil {
		return content{}, err
	}
	return content{group: pod.Spec.SchedulingGroup.PodGroupName}, nil
}
