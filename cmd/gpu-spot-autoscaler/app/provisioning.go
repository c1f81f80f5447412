package app

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/autoscaler/cluster-autoscaler/core/scaleup"
	"k8s.io/autoscaler/cluster-autoscaler/processors/pods"
	"k8s.io/autoscaler/cluster-autoscaler/processors/provreq"
	"k8s.io/autoscaler/cluster-autoscaler/provisioningrequest/besteffortatomic"
	"k8s.io/autoscaler/cluster-autoscaler/provisioningrequest/checkcapacity"
	provreqorchestrator "k8s.io/autoscaler/cluster-autoscaler/provisioningrequest/orchestrator"
	"k8s.io/autoscaler/cluster-autoscaler/provisioningrequest/provreqclient"
	"k8s.io/client-go/rest"
)

// provisioning is Cluster Autoscaler's support for ProvisioningRequests.
type provisioning struct {
	injector     *provreq.ProvisioningRequestPodsInjector
	processor    provisioningProcessor
	orchestrator scaleup.Orchestrator
}

// provisioningProcessor is a PodListProcessor that is also called at the start of each loop.
type provisioningProcessor interface {
	pods.PodListProcessor
	Refresh()
}

func newProvisioning(config *Config) (*provisioning, error) {
	autoscaling := config.Autoscaling
	// The API server does not serve custom resources as protobuf, which the other clients use.
	kube := rest.CopyConfig(config.KubeConfig)
	kube.ContentType = runtime.ContentTypeJSON
	client, err := provreqclient.NewProvisioningRequestClient(kube)
	if err != nil {
		return nil, fmt.Errorf("make the client for ProvisioningRequests: %w", err)
	}
	injector, err := provreq.NewProvisioningRequestPodsInjector(kube,
		autoscaling.ProvisioningRequestInitialBackoffTime, autoscaling.ProvisioningRequestMaxBackoffTime,
		autoscaling.ProvisioningRequestMaxBackoffCacheSize, autoscaling.CheckCapacityBatchProcessing,
		autoscaling.CheckCapacityProcessorInstance)
	if err != nil {
		return nil, fmt.Errorf("watch ProvisioningRequests: %w", err)
	}
	var batch *provreq.ProvisioningRequestPodsInjector
	if autoscaling.CheckCapacityBatchProcessing {
		batch = injector
	}
	return &provisioning{
		injector:  injector,
		processor: provreq.NewProvReqProcessor(client, autoscaling.CheckCapacityProcessorInstance),
		orchestrator: provreqorchestrator.NewWrapperOrchestrator(provreqorchestrator.New(client, []provreqorchestrator.ProvisioningClass{
			checkcapacity.New(client, batch),
			besteffortatomic.New(client),
		})),
	}, nil
}

// extend adds processors to core's chain that remove the pods that consume a request, and add the pods of the request in their turn.
func (p *provisioning) extend(chain *pods.CombinedPodListProcessor) {
	chain.AddProcessor(provreq.NewProvisioningRequestPodsFilter(provreq.NewDefautlEventManager()))
	chain.AddProcessor(p.injector)
	chain.AddProcessor(p.processor)
}
