package processors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	cacontext "k8s.io/autoscaler/cluster-autoscaler/context"
	"k8s.io/autoscaler/cluster-autoscaler/core"
	"k8s.io/autoscaler/cluster-autoscaler/processors/nodeinfosprovider"
	"k8s.io/autoscaler/cluster-autoscaler/simulator"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
	"k8s.io/autoscaler/cluster-autoscaler/utils/taints"
	"k8s.io/klog/v2"
)

// Versions tell when a template has to be built anew.
type Versions interface {
	// TemplateVersion changes whenever what NodeGroup.TemplateNodeInfo would return changes.
	TemplateVersion(groupID string) string
}

// Templates says what a new node of each offering looks like, DaemonSet pods included.
//
// It builds from the offering, never from a node of it. Core's own provider prefers real nodes, but those carry labels
// of their own life (a reclaim, a job), hide changed tags for years, and are not there for most offerings most of the
// time; and it builds all others again in every loop. Here a template is built when the offering's template, the
// DaemonSets or the learned sizes change, and remembered otherwise.
//
// The one thing that real nodes know better is how much of a machine the kubelet leaves to pods. Where a ready node
// has less CPU, memory, storage or room for pods than the template promises, the template of its type in its pool is
// cut down to it: a promise that no node keeps would buy a node for the same pod over and over. GPUs are not learned,
// since a node with a broken GPU says nothing about a new one.
//
// An offering whose template cannot be built keeps the last one. If it never had one it gets a node on which nothing
// fits, because core fails whole loops over a group that has nodes coming and no template.
type Templates struct {
	versions Versions
	events   EventSink
	built    map[string]*template
	// smallest is what ready nodes leave to pods, by pool and type.
	smallest map[string]apiv1.ResourceList
	// since is when the promise for a pool and type last changed: older nodes say nothing about new ones.
	since map[string]time.Time
	// complaints are the errors already told of, by group.
	complaints map[string]string
}

type template struct {
	// version is the offering's; the fingerprint is of all that the template was built from.
	version, fingerprint string
	info                 *framework.NodeInfo
}

var _ nodeinfosprovider.TemplateNodeInfoProvider = (*Templates)(nil)

// NewTemplates makes a provider that remembers nothing yet.
func NewTemplates(versions Versions, events EventSink) *Templates {
	return &Templates{
		versions: versions, events: events,
		built: map[string]*template{}, smallest: map[string]apiv1.ResourceList{}, since: map[string]time.Time{}, complaints: map[string]string{},
	}
}

// Process returns the template of every node group. It never fails.
func (t *Templates) Process(ctx *cacontext.AutoscalingContext, readyNodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	taintConfig taints.TaintConfig, now time.Time) (map[string]*framework.NodeInfo, errors.AutoscalerError) {
	t.learn(ctx.CloudProvider, readyNodes)
	daemons := fingerprint(daemonSets)
	groups := ctx.CloudProvider.NodeGroups()
	result := make(map[string]*framework.NodeInfo, len(groups))
	for _, group := range groups {
		t.unlearn(group.Id(), now)
		result[group.Id()] = t.of(group, daemons, daemonSets, taintConfig)
	}
	forget := func(id string) bool { return result[id] == nil }
	maps.DeleteFunc(t.built, func(id string, _ *template) bool { return forget(id) })
	maps.DeleteFunc(t.complaints, func(id, _ string) bool { return forget(id) })
	return result, nil
}

func (t *Templates) of(group cloudprovider.NodeGroup, daemons string, daemonSets []*appsv1.DaemonSet, taintConfig taints.TaintConfig) *framework.NodeInfo {
	id := group.Id()
	known := t.built[id]
	if known != nil {
		// Core marks the template itself when it copies it for nodes on their way.
		delete(known.info.Node().Annotations, core.NodeUpcomingAnnotation)
	}
	offered := t.versions.TemplateVersion(id)
	version := offered + "|" + daemons
	if known != nil && known.fingerprint == version+t.learned(id) {
		return known.info
	}
	info, err := simulator.SanitizedTemplateNodeInfoFromNodeGroup(&cutDown{NodeGroup: group, smallest: t.smallest}, daemonSets, taintConfig)
	if err != nil {
		t.complain(id, err)
		if known != nil {
			return known.info
		}
		return unusable(id)
	}
	templateBuilds.Inc()
	delete(t.complaints, id)
	t.built[id] = &template{version: offered, fingerprint: version + t.learned(id), info: info}
	return info
}

// unlearn forgets what nodes have shown of a type in a pool when its offering has changed, such as by a larger disk.
func (t *Templates) unlearn(groupID string, now time.Time) {
	if known := t.built[groupID]; known != nil && known.version != t.versions.TemplateVersion(groupID) {
		key := machineKey(groupID)
		delete(t.smallest, key)
		t.since[key] = now
	}
}

// complain tells of a group's error once, and again when the error changes.
func (t *Templates) complain(id string, err error) {
	templateFailures.Inc()
	klog.Errorf("Cannot build a node template for %s: %v", id, err)
	if t.complaints[id] != err.Error() {
		t.complaints[id] = err.Error()
		t.events.Eventf(apiv1.EventTypeWarning, "SpotTemplateFailed", "Cannot buy from %s: %v", id, err)
	}
}

// learn takes the smallest allocatable of the nodes that are ready, by pool and type. What was learned stays when the
// last such node goes.
func (t *Templates) learn(provider cloudprovider.CloudProvider, readyNodes []*apiv1.Node) {
	seen := map[string]apiv1.ResourceList{}
	for _, node := range readyNodes {
		group, err := provider.NodeGroupForNode(node)
		if err != nil || group == nil || node.Spec.Unschedulable {
			continue
		}
		key := machineKey(group.Id())
		if node.CreationTimestamp.Time.Before(t.since[key]) {
			continue
		}
		if seen[key] == nil {
			seen[key] = apiv1.ResourceList{}
		}
		for _, name := range learnedResources {
			if quantity, ok := node.Status.Allocatable[name]; ok {
				if least, known := seen[key][name]; !known || quantity.Cmp(least) < 0 {
					seen[key][name] = quantity
				}
			}
		}
	}
	maps.Copy(t.smallest, seen)
}

var learnedResources = []apiv1.ResourceName{apiv1.ResourceCPU, apiv1.ResourceMemory, apiv1.ResourceEphemeralStorage, apiv1.ResourcePods}

func (t *Templates) learned(groupID string) string {
	var text strings.Builder
	smallest := t.smallest[machineKey(groupID)]
	for _, name := range learnedResources {
		if quantity, ok := smallest[name]; ok {
			fmt.Fprintf(&text, "|%s=%s", name, quantity.String())
		}
	}
	return text.String()
}

// machineKey names what has one kubelet configuration and one size: a type in a pool, with which the group's id begins. For
// a pool whose types cannot be told apart it is all of them, since its template promises what the least of them keeps.
func machineKey(groupID string) string {
	parts := strings.SplitN(groupID, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// CleanUp is called when the autoscaler ends.
func (t *Templates) CleanUp() {}

// cutDown is a node group whose template promises no more than its smallest node keeps.
type cutDown struct {
	cloudprovider.NodeGroup
	smallest map[string]apiv1.ResourceList
}

func (c *cutDown) TemplateNodeInfo() (*framework.NodeInfo, error) {
	info, err := c.NodeGroup.TemplateNodeInfo()
	if err != nil {
		return nil, err
	}
	if info == nil || info.Node() == nil {
		return nil, fmt.Errorf("%s has no template", c.Id())
	}
	node := info.Node().DeepCopy()
	for name, least := range c.smallest[machineKey(c.Id())] {
		if promised, ok := node.Status.Allocatable[name]; ok && least.Cmp(promised) < 0 {
			node.Status.Allocatable[name] = least
		}
	}
	return framework.NewNodeInfo(node, info.LocalResourceSlices, info.Pods()...), nil
}

// fingerprint changes when a DaemonSet is added, changed or removed. The order of the list means nothing.
func fingerprint(daemonSets []*appsv1.DaemonSet) string {
	parts := make([]string, 0, len(daemonSets))
	for _, set := range daemonSets {
		parts = append(parts, fmt.Sprintf("%s/%d", set.UID, set.Generation))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// unusable is a node on which no pod fits.
func unusable(groupID string) *framework.NodeInfo {
	name := "no-template-for-" + groupID
	return framework.NewNodeInfo(&apiv1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name:        name,
			Labels:      map[string]string{apiv1.LabelHostname: name},
			Annotations: map[string]string{},
		},
		Spec: apiv1.NodeSpec{Unschedulable: true},
	}, nil)
}
