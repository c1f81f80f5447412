package app

import (
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
)

// Requests per second and burst to the objects of jobs: three for each job that a reclaim hits, of which there may be a
// thousand at once. Who waits here for too long begins anew, so that less would be much less.
const (
	jobsQPS   = 200
	jobsBurst = 1000
)

// newJobs returns the registry of job systems, whose clients have a budget of their own.
func newJobs(config *Config, recorder record.EventRecorder) (*jobs.Registry, error) {
	kube := rest.CopyConfig(config.KubeConfig)
	kube.QPS, kube.Burst, kube.RateLimiter = jobsQPS, jobsBurst, nil
	objects, err := dynamic.NewForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("make the client of jobs: %w", err)
	}
	definitions, err := metadata.NewForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("make the client of job definitions: %w", err)
	}
	client, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("make the client of jobs: %w", err)
	}
	cluster := jobs.Cluster{Dynamic: objects, Client: client, Clock: config.Clock}
	return jobs.New(jobs.Config{Cluster: cluster, Systems: systems.All(cluster), Metadata: definitions, Recorder: recorder, Clock: config.Clock})
}
