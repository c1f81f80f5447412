package pool

import (
	"fmt"
	"hash/fnv"
	"strconv"

	apiv1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/template"
)

// whole returns the one node group of a pool that cannot be targeted. Any of the offerings may be delivered, so the node has
// only what the nodes of all offerings have in common. The price is that of the dearest offering, and each instance type
// keeps its own cap: see Price and Affordable.
func (p *Pool) whole() *Offering {
	first := p.Offerings[0]
	common := first.Template.DeepCopy()
	digest := fnv.New64a()
	for _, offered := range p.Offerings {
		template.Intersect(common, offered.Template)
		fmt.Fprintln(digest, offered.TemplateVersion)
	}
	common.Labels[apiv1.LabelHostname] = common.Name
	metav1.SetMetaDataAnnotation(&common.ObjectMeta, api.AnnotationWholePool, p.ID)
	return &Offering{
		Offering: p.wholeOffering(), SpotStrategy: first.SpotStrategy,
		Template: common, TemplateVersion: strconv.FormatUint(digest.Sum64(), 36),
	}
}
