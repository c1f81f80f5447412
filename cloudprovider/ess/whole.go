package ess

import (
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
)

// whole stands for all offerings of a pool that cannot be targeted. As any of them may come, its node has what all of them
// have. The price is that of the dearest, and each type keeps its own cap: see dearest and affordable.
func (p *pool) whole() *knownOffering {
	first := p.offerings[0]
	common := first.template.DeepCopy()
	digest := fnv.New64a()
	for _, offered := range p.offerings {
		keepCommon(common, offered.template)
		fmt.Fprintln(digest, offered.templateVersion)
	}
	common.Labels[apiv1.LabelHostname] = common.Name
	metav1.SetMetaDataAnnotation(&common.ObjectMeta, api.AnnotationWholePool, p.id)
	return &knownOffering{
		offering: offering{anyOffering, anyOffering, p.purchase}, spotStrategy: first.spotStrategy,
		template: common, templateVersion: strconv.FormatUint(digest.Sum64(), 36),
	}
}

// keepCommon leaves of the node what the other has too: a pod that selects one type of several, or is as large as the
// largest of them, would be bought nodes without end that it does not fit.
func keepCommon(node, other *apiv1.Node) {
	maps.DeleteFunc(node.Labels, func(key, value string) bool { return other.Labels[key] != value })
	if node.Status.NodeInfo.Architecture != other.Status.NodeInfo.Architecture {
		node.Status.NodeInfo.Architecture = ""
	}
	keepLeast(node.Status.Capacity, other.Status.Capacity)
	keepLeast(node.Status.Allocatable, other.Status.Allocatable)
}

// keepLeast leaves of the resources the less of both, and none that the other lacks.
func keepLeast(resources, other apiv1.ResourceList) {
	for name, quantity := range resources {
		switch least, has := other[name]; {
		case !has:
			delete(resources, name)
		case least.Cmp(quantity) < 0:
			resources[name] = least
		}
	}
}
