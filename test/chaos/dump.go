package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"gpu-spot-autoscaler/test/drill"
	"gpu-spot-autoscaler/test/operators"
	"gpu-spot-autoscaler/test/standin"
)

// dumped are the kinds of objects that explain the state of a job, operatedDumped those that do under real operators.
var (
	dumped = []schema.GroupVersionResource{
		batchJobs, {Group: "apps", Version: "v1", Resource: "replicasets"},
		standin.TrainingJobs, standin.ScaleIns, standin.ScaleOuts,
		{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "events"},
	}
	operatedDumped = []schema.GroupVersionResource{
		batchJobs, operators.JobSets, operators.Workloads,
		{Version: "v1", Resource: "pods"}, {Version: "v1", Resource: "events"},
	}
)

// dumpBrokenJobs writes all objects that are named after a broken job, as YAML.
func (e *experiment) dumpBrokenJobs(ctx context.Context, states map[string]drill.State, path string) error {
	client, err := dynamic.NewForConfig(e.rig.Cluster.AdminConfig())
	if err != nil {
		return err
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	resources := dumped
	if e.operated {
		resources = operatedDumped
	}
	for _, resource := range resources {
		list, err := client.Resource(resource).Namespace(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, object := range list.Items {
			if !ofBroken(object.GetName(), states) {
				continue
			}
			object.SetManagedFields(nil)
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				return err
			}
			fmt.Fprintf(file, "---\n%s", text)
		}
	}
	return nil
}

// ofBroken goes by the beginning of the name, which is that of the job: "job-007" of "job-007-worker-3", and of the Workload
// "job-job-007-5f3a1", before which Kueue puts the kind.
func ofBroken(name string, states map[string]drill.State) bool {
	if strings.HasPrefix(name, "job-job-") {
		name = strings.TrimPrefix(name, "job-")
	}
	const length = len("job-000")
	if len(name) < length {
		return false
	}
	state, known := states[name[:length]]
	return known && isBroken(state)
}
