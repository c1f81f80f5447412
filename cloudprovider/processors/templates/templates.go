package templates

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

// Versions tells when a template has to be built again.
type Versions interface {
	// TemplateVersion returns a value that changes whenever what NodeGroup.TemplateNodeInfo returns changes.
	TemplateVersion(groupID string) string
}

// EventSink records Kubernetes Events on the autoscaler's Deployment.
type EventSink interface {
	Eventf(eventType, reason, messageFmt string, args ...any)
}

// Templates returns the node template of each offering, DaemonSet pods included.
//
// A template is built from the offering, never copied from one of its nodes. Core's own provider prefers real nodes. Those
// carry labels of their own (of a reclaim, of a job), do not show that the tags of their pool have changed, and do not exist
// for most offerings most of the time. A template is built again when the offering's template, the DaemonSets or the observed
// allocatable resources change, and reused otherwise.
//
// Real nodes are the better source for one thing: how much of a machine the kubelet leaves to pods. Where a ready node has
// less allocatable CPU, memory, ephemeral storage or pods than the template, the templates of its instance type in its pool
// are reduced to that. Otherwise core would buy a node for the same pod again and again. GPUs are not observed, because a
// node with a broken GPU says nothing about a new one.
//
// An offering whose template cannot be built keeps its last one. If it never had one, it gets a node on which no pod fits:
// core ends the whole loop with an error if a node group has upcoming nodes and no template.
type Templates struct {
	versions Versions
	events   EventSink
	built    map[string]*template
	// smallest is the least that ready nodes leave to pods, by pool and instance type.
	smallest map[string]apiv1.ResourceList
	// since is when the template for a pool and instance type last changed. Nodes created before are not observed.
	since map[string]time.Time
	// reported are the errors that an Event was recorded for, by node group.
	reported map[string]string
}

type template struct {
	// version is the offering's template version. The fingerprint covers everything that the template was built from.
	version, fingerprint string
	info                 *framework.NodeInfo
}

var _ nodeinfosprovider.TemplateNodeInfoProvider = (*Templates)(nil)

// New returns a provider without templates.
func New(versions Versions, events EventSink) *Templates {
	return &Templates{
		versions: versions, events: events,
		built: map[string]*template{}, smallest: map[string]apiv1.ResourceList{}, since: map[string]time.Time{}, reported: map[string]string{},
	}
}

// Process returns the template of every node group. It never fails.
func (t *Templates) Process(ctx *cacontext.AutoscalingContext, readyNodes []*apiv1.Node, daemonSets []*appsv1.DaemonSet,
	taintConfig taints.TaintConfig, now time.Time) (map[string]*framework.NodeInfo, errors.AutoscalerError) {
	t.observe(ctx.CloudProvider, readyNodes)
	daemons := fingerprint(daemonSets)
	groups := ctx.CloudProvider.NodeGroups()
	result := make(map[string]*framework.NodeInfo, len(groups))
	for _, group := range groups {
		t.forgetOutdated(group.Id(), now)
		result[group.Id()] = t.templateFor(group, daemons, daemonSets, taintConfig)
	}
	forget := func(id string) bool { return result[id] == nil }
	maps.DeleteFunc(t.built, func(id string, _ *template) bool { return forget(id) })
	maps.DeleteFunc(t.reported, func(id, _ string) bool { return forget(id) })
	return result, nil
}

// templateFor returns the template of the group: the last one, if nothing has changed that it was built from.
func (t *Templates) templateFor(group cloudprovider.NodeGroup, daemons string, daemonSets []*appsv1.DaemonSet, taintConfig taints.TaintConfig) *framework.NodeInfo {
	id := group.Id()
	known := t.built[id]
	if known != nil {
		// Core writes this annotation into the template when it copies the template for upcoming nodes.
		delete(known.info.Node().Annotations, core.NodeUpcomingAnnotation)
	}
	offered := t.versions.TemplateVersion(id)
	version := offered + "|" + daemons
	if known != nil && known.fingerprint == version+t.observed(id) {
		return known.info
	}
	info, err := simulator.SanitizedTemplateNodeInfoFromNodeGroup(&reduced{NodeGroup: group, smallest: t.smallest}, daemonSets, taintConfig)
	if err != nil {
		t.report(id, err)
		if known != nil {
			return known.info
		}
		return unusable(id)
	}
	builds.Inc()
	delete(t.reported, id)
	t.built[id] = &template{version: offered, fingerprint: version + t.observed(id), info: info}
	return info
}

// forgetOutdated drops the observed resources of an instance type in a pool when its offering has changed, for example to a
// larger disk.
func (t *Templates) forgetOutdated(groupID string, now time.Time) {
	if known := t.built[groupID]; known != nil && known.version != t.versions.TemplateVersion(groupID) {
		key := machineKey(groupID)
		delete(t.smallest, key)
		t.since[key] = now
	}
}

// report logs a group's error, and records an Event the first time and whenever the error changes.
func (t *Templates) report(id string, err error) {
	failures.Inc()
	klog.ErrorS(err, "Cannot build a node template", "nodeGroup", id)
	if t.reported[id] != err.Error() {
		t.reported[id] = err.Error()
		t.events.Eventf(apiv1.EventTypeWarning, "SpotTemplateFailed", "Cannot buy from %s: %v", id, err)
	}
}

// observe records the smallest allocatable resources of the ready nodes, by pool and instance type. A record stays when the
// last such node goes.
func (t *Templates) observe(provider cloudprovider.CloudProvider, readyNodes []*apiv1.Node) {
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
		for _, name := range observedResources {
			if quantity, ok := node.Status.Allocatable[name]; ok {
				if least, known := seen[key][name]; !known || quantity.Cmp(least) < 0 {
					seen[key][name] = quantity
				}
			}
		}
	}
	maps.Copy(t.smallest, seen)
}

var observedResources = []apiv1.ResourceName{apiv1.ResourceCPU, apiv1.ResourceMemory, apiv1.ResourceEphemeralStorage, apiv1.ResourcePods}

// observed returns a text of the observed resources of the group's instance type.
func (t *Templates) observed(groupID string) string {
	var text strings.Builder
	smallest := t.smallest[machineKey(groupID)]
	for _, name := range observedResources {
		if quantity, ok := smallest[name]; ok {
			fmt.Fprintf(&text, "|%s=%s", name, quantity.String())
		}
	}
	return text.String()
}

// machineKey returns the part of a node group's id that names the pool and the instance type: nodes with the same key have
// the same size and the same kubelet configuration. For a pool that is one node group of all its types, the key covers all
// of them.
func machineKey(groupID string) string {
	parts := strings.SplitN(groupID, "/", 3)
	return strings.Join(parts[:min(2, len(parts))], "/")
}

// CleanUp does nothing.
func (t *Templates) CleanUp() {}

// reduced is a node group whose template has no more allocatable resources than its smallest node.
type reduced struct {
	cloudprovider.NodeGroup
	smallest map[string]apiv1.ResourceList
}

func (r *reduced) TemplateNodeInfo() (*framework.NodeInfo, error) {
	info, err := r.NodeGroup.TemplateNodeInfo()
	if err != nil {
		return nil, err
	}
	if info == nil || info.Node() == nil {
		return nil, fmt.Errorf("%s has no template", r.Id())
	}
	node := info.Node().DeepCopy()
	for name, least := range r.smallest[machineKey(r.Id())] {
		if promised, ok := node.Status.Allocatable[name]; ok && least.Cmp(promised) < 0 {
			node.Status.Allocatable[name] = least
		}
	}
	return framework.NewNodeInfo(node, info.LocalResourceSlices, info.Pods()...), nil
}

// fingerprint returns a text that changes when a DaemonSet is added, changed or removed. It does not depend on the order.
func fingerprint(daemonSets []*appsv1.DaemonSet) string {
	parts := make([]string, 0, len(daemonSets))
	for _, set := range daemonSets {
		parts = append(parts, fmt.Sprintf("%s/%d", set.UID, set.Generation))
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

// unusable returns a node on which no pod fits.
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
