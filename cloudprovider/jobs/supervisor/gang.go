package supervisor

import (
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	quota "k8s.io/apiserver/pkg/quota/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	"gpu-spot-autoscaler/cloudprovider/ess/template"
	"gpu-spot-autoscaler/cloudprovider/jobs"
	"gpu-spot-autoscaler/cloudprovider/processors/podlist"
)

// gang is pods that a job would get back.
type gang struct {
	pods []*corev1.Pod
	// min of them must have a place at the same time; indispensable are those without which the others are of no use.
	min           int
	indispensable []*corev1.Pod
	launchers     int
	offered       time.Time
	isDynamic     bool
	// isGrowth is true if the pods are added to a job that runs, which lacked so many workers when the gang was made.
	isGrowth bool
	missing  int
	// uses is what the pods take of the quota of a queue of Kueue, nil until it is asked for.
	uses corev1.ResourceList
}

// isEnough returns whether the job can go on with what fits on nodes that are ready, and with how many workers.
func (g *gang) isEnough(found podlist.Placement, now time.Time) (workers int, isEnough bool) {
	for _, pod := range g.indispensable {
		if !slices.Contains(found.Ready, pod) {
			return 0, false
		}
	}
	isComplete := len(found.Ready) == len(g.pods)
	waits := g.isGrowth && len(found.Coming) > 0 && now.Sub(g.offered) < growTogetherTime
	return len(found.Ready) - g.launchers, isComplete || g.isDynamic && len(found.Ready) >= g.min && !waits
}

// gangMaker makes gangs within what the pools could hold and what the quotas of namespaces let in. A job asks for what its
// owner writes, be it 300,000 workers: pods of a held job do not exist, so that nothing else bounds them.
type gangMaker struct {
	jobs      Jobs
	pools     Pools
	nodes     corelisters.NodeLister
	quotas    corelisters.ResourceQuotaLister
	evaluator quota.Evaluator // counts what a pod uses of a quota
}

// all returns a gang of all pods of the job, or nil where it has none.
func (m *gangMaker) all(j *heldJob, now time.Time, offers *offers) (*gang, error) {
	pods, err := m.podsInQuota(j, offers)
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	g := &gang{pods: pods, min: len(pods), offered: now, isDynamic: j.isDynamic()}
	for _, pod := range pods {
		switch m.jobs.Member(pod).Role {
		case jobs.RoleLauncher:
			g.launchers++
			g.indispensable = append(g.indispensable, pod)
		case jobs.RoleHost:
			g.indispensable = append(g.indispensable, pod)
		}
	}
	if g.isDynamic {
		g.min = min(len(pods), max(len(g.indispensable), g.launchers+j.least()))
	}
	return g, nil
}

// missing returns a gang of the workers that a job lacks, or nil where there are none.
func (m *gangMaker) missing(j *heldJob, missing int, now time.Time, offers *offers) (*gang, error) {
	pods, possible, err := m.podsInCapacity(j, j.job.FullReplicas())
	more := missing - (j.job.FullReplicas() - possible)
	workers := slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return m.jobs.Member(pod).Role != jobs.RoleWorker })
	if err != nil || more <= 0 || len(workers) < more {
		return nil, err
	}
	workers = workers[len(workers)-more:]
	fit, err := m.inQuota(j, offers, workers)
	if fit > 0 && j.isDynamic() {
		workers, err = workers[:fit], nil
	}
	if err != nil {
		return nil, err
	}
	g := &gang{pods: workers, min: len(workers), offered: now, isDynamic: j.isDynamic(), isGrowth: true, missing: missing}
	if g.isDynamic {
		g.min = 1
	}
	return g, nil
}

// podsInCapacity returns the job's pods with so many workers; for a dynamic job, with as many of them as there could be capacity for.
func (m *gangMaker) podsInCapacity(j *heldJob, workers int) (pods []*corev1.Pod, possible int, err error) {
	pods, err = m.jobs.Gang(j.job, workers, m.mostPods)
	tooMany := (*jobs.TooManyPodsError)(nil)
	if errors.As(err, &tooMany) && tooMany.Workers && j.isDynamic() && j.least() <= tooMany.Most && tooMany.Most < workers {
		workers = tooMany.Most
		pods, err = m.jobs.Gang(j.job, workers, m.mostPods)
	}
	return pods, workers, err
}

// podsInQuota returns the job's pods; for a dynamic job, with as many workers as there could be capacity for and the quota lets in.
func (m *gangMaker) podsInQuota(j *heldJob, offers *offers) ([]*corev1.Pod, error) {
	pods, workers, err := m.podsInCapacity(j, j.job.FullReplicas())
	if err != nil {
		return nil, err
	}
	fit, err := m.inQuota(j, offers, pods)
	if workers -= len(pods) - fit; err == nil || !j.isDynamic() || workers < j.least() {
		return pods, err
	}
	if pods, err = m.jobs.Gang(j.job, workers, m.mostPods); err == nil {
		_, err = m.inQuota(j, offers, pods)
	}
	return pods, err
}

// mostPods implements jobs.MostPods: it counts what fits on nodes of pools, all of which may yet be bought, and on other nodes; or on
// all nodes as they are, which may hold more than a pool knows of, where GPUs are shared by time.
func (m *gangMaker) mostPods(pod *corev1.Pod) int {
	most := m.pools.MostPods(pod)
	nodes, err := m.nodes.List(labels.Everything())
	if err != nil {
		return most
	}
	requests, onAll := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}), 0
	for _, node := range nodes {
		onThis := template.MaxPods(node, requests)
		onAll += onThis
		if _, ours := m.pools.PoolID(node); !ours {
			most += onThis
		}
	}
	return max(most, onAll)
}
