package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/jobs/systems"
)

// Versions of Kubernetes. docs/install.md says which were tested, and a test compares the two. ValidatingAdmissionPolicies are v1 from
// 1.30 on (kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy).
var (
	oldestUsable = version.MustParseGeneric("1.30")
	newestTested = version.MustParseGeneric("1.36")
)

// clusterExam examines the cluster.
type clusterExam struct {
	*Doctor
	report *Report
	// settings are the annotations of the ConfigMaps of pools, by scaling group; settingsIn are their names.
	settings   map[string]map[string]string
	settingsIn map[string]string
	// lacksAgent says that the node-agent is not installed, lacksPush that the endpoint for notices is not. Both are false if it is not known.
	lacksAgent, lacksPush bool
	// isDryRun and serves say that the autoscaler that is installed is a dry run, or serves another Cluster Autoscaler.
	isDryRun, serves bool
}

// isReachable checks the version of the API server, and returns whether there is one.
func (e *clusterExam) isReachable(context.Context) bool {
	found, err := e.Kube.Discovery().ServerVersion()
	if err != nil {
		e.report.add(ClusterUnreachable, Error, "", fmt.Sprintf("the API server does not say its version: %v", err), "Correct --kubeconfig or --context, or see why the API server does not answer")
		return false
	}
	served, err := version.ParseGeneric(found.GitVersion)
	switch {
	case err != nil:
		e.report.notProven(fmt.Sprintf("the version of Kubernetes: %v", err))
	case served.LessThan(oldestUsable):
		e.report.add(KubernetesVersion, Error, "", fmt.Sprintf("Kubernetes is %s, which does not serve the admission policies of the chart as v1", found.GitVersion),
			fmt.Sprintf("Upgrade the cluster to %s or newer", oldestUsable))
	case served.Major() > newestTested.Major() || served.Minor() > newestTested.Minor():
		e.report.add(KubernetesVersion, Warning, "", fmt.Sprintf("Kubernetes is %s, and nothing newer than %s was tested", found.GitVersion, newestTested),
			"Try it in a cluster without jobs first, or take a version of the autoscaler that was tested with it")
	}
	return true
}

// failed notes that something of the cluster could not be read, and returns whether that is so.
func (e *clusterExam) failed(what string, err error) bool {
	if err != nil {
		e.report.notProven(fmt.Sprintf("%s: %v", what, err))
	}
	return err != nil
}

// readSettings reads the ConfigMaps of pools, of which the first by name counts.
func (e *clusterExam) readSettings(ctx context.Context) {
	e.settings, e.settingsIn = map[string]map[string]string{}, map[string]string{}
	list, err := e.Kube.CoreV1().ConfigMaps(e.Namespace).List(ctx, metav1.ListOptions{LabelSelector: api.LabelPool})
	if e.failed("settings of pools in ConfigMaps", err) {
		return
	}
	for _, configMap := range list.Items {
		id := configMap.Labels[api.LabelPool]
		if first, known := e.settingsIn[id]; !known || configMap.Name < first {
			e.settings[id], e.settingsIn[id] = configMap.Annotations, configMap.Name
		}
	}
}

// examine examines the cluster. The pools are nil if the cloud was not examined.
func (e *clusterExam) examine(ctx context.Context, cloud *cloudExam) {
	installed := e.isInstalled(ctx)
	if installed {
		e.checkPolicies(ctx)
		e.checkAgent(ctx)
		e.checkPush(ctx)
	}
	e.checkOthers(ctx)
	var pools map[string]*pool.Pool
	if cloud != nil {
		pools = cloud.pools
		e.checkSettings(cloud)
		e.checkACK(ctx, cloud)
		e.checkNodes(ctx, cloud)
		if installed && cloud.pollRefused && e.lacksAgent && e.lacksPush {
			mend := "Allow ecs:DescribeInstances"
			if !e.isDryRun { // which has no node-agent
				mend += ", or set nodeAgent.enabled in the chart's values"
			}
			e.report.add(NoNotices, Error, "", "ECS cannot be asked for reclaim notices, and neither the node-agent nor the endpoint for pushed notices is installed", mend)
		}
	}
	w := &workloads{clusterExam: e, pools: pools, systems: systems.All(jobs.Cluster{})}
	w.examine(ctx)
}

// isInstalled returns whether the Deployment of the autoscaler exists, and reads from it what it is to do.
func (e *clusterExam) isInstalled(ctx context.Context) bool {
	deployment, err := e.Kube.AppsV1().Deployments(e.Namespace).Get(ctx, e.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		e.lacksAgent, e.lacksPush = true, true
		return false
	}
	if e.failed("whether the autoscaler is installed", err) {
		return false
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		e.isDryRun = e.isDryRun || slices.Contains(container.Args, "--dry-run")
		e.serves = e.serves || slices.Contains(container.Args, "serve")
	}
	return true
}

// checkSettings checks that there is a pool for each ConfigMap.
func (e *clusterExam) checkSettings(cloud *cloudExam) {
	if cloud.groups == nil {
		return // they could not be read
	}
	managed := map[string]bool{}
	for _, group := range cloud.groups {
		managed[group.ID] = true
	}
	for _, id := range slices.Sorted(maps.Keys(e.settingsIn)) {
		if !managed[id] {
			e.report.add(UnknownPool, Warning, e.Namespace+"/"+e.settingsIn[id], fmt.Sprintf("the ConfigMap has settings of the scaling group %q, which is not managed", id),
				"Correct the label "+api.LabelPool+", or delete the ConfigMap")
		}
	}
}
