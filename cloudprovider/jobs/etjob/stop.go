package etjob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/jobs"
)

const (
	// stopPort and stopPath are where training code listens that was written for Elastic-Job-Supervisor, with the SDK that
	// belongs to it (kubeai.elastic). When it is called there, rank 0 saves its checkpoint, and all ranks exit with an error.
	//
	// Neither Elastic-Job-Supervisor nor the SDK has a public source. Port and path are those of the sample in ACK's documentation of arena submit
	// etjob --spot-instance. So only jobs that were submitted so are called, and one that does not answer is suspended in time.
	stopPort = "9009"
	stopPath = "/stop"
	// stopTimeout bounds one call, stopParallelism how many are under way for one job.
	stopTimeout     = 2 * time.Second
	stopParallelism = 32
)

// Stop calls the workers of a job that was submitted with --spot-instance. Before, it notes on the job that its end is asked
// for, and how often it was restarted by then: to end is a failure for the operator. The held label is written first, so
// that a leader that starts after its end finds it and does suspend it.
func (s *System) Stop(ctx context.Context, job jobs.Job) (heard int, err error) {
	if job.Object.GetAnnotations()[api.AnnotationSupervisorSpot] != "true" {
		return 0, nil
	}
	workers, err := s.workersOf(ctx, job.NamespacedName)
	if err != nil {
		return 0, err
	}
	urls := stopURLs(job.Object, workers)
	if len(urls) == 0 {
		return 0, nil
	}
	object, err := decode(job.Object)
	if err != nil {
		return 0, err
	}
	if job, err = withReplicasToHold(job); err != nil {
		return 0, err
	}
	patch := s.cluster.HoldPatch(job, jobs.HeldSuspended, jobs.HeldForReclaim)
	if !job.StopRequested { // else a former leader has noted both, and the job may have ended since
		patch.SetAnnotation(api.AnnotationStopRequested, s.cluster.Clock.Now().UTC().Format(time.RFC3339)).
			SetAnnotation(api.AnnotationHeldRestarts, strconv.Itoa(object.Status.RestartCount.Int()))
	}
	if err := s.cluster.PatchJob(ctx, resource, job, patch); err != nil {
		return 0, err
	}
	return callAll(ctx, urls), nil
}

// workersOf asks the API server for the workers of a job: the informers do not have the addresses of pods.
func (s *System) workersOf(ctx context.Context, job types.NamespacedName) ([]corev1.Pod, error) {
	selector := labels.Set{labelGroup: group, labelJob: job.Name, labelRole: roleWorker}
	pods, err := s.cluster.Client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("find its workers: %w", err)
	}
	return pods.Items, nil
}

// stopURLs returns those of the pods that run as workers of this very job. Pods in the network of their node are left out:
// another program may listen there. The kubelet writes a pod's address, and no user can.
func stopURLs(job *unstructured.Unstructured, workers []corev1.Pod) (urls []string) {
	for i := range workers {
		pod := &workers[i]
		if pod.Namespace != job.GetNamespace() || !metav1.IsControlledBy(pod, job) || pod.Spec.HostNetwork ||
			pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			continue
		}
		address, err := netip.ParseAddr(pod.Status.PodIP)
		if err != nil || !address.IsGlobalUnicast() || address == metadataService {
			continue
		}
		target := url.URL{Scheme: "http", Host: net.JoinHostPort(address.String(), stopPort), Path: stopPath}
		urls = append(urls, target.String())
	}
	return urls
}

// metadataService is where ECS instances find their metadata and credentials. Unlike that of other clouds it is no link-local
// address.
var metadataService = netip.MustParseAddr("100.100.100.200")

// stopClient uses no proxy and follows no redirect, so that it reaches no address but that of the pod.
var stopClient = &http.Client{
	Timeout:       stopTimeout,
	Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 4 << 10},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// callAll calls all URLs, and returns how many of them answered with 200.
func callAll(ctx context.Context, urls []string) int {
	var heard atomic.Int64
	var mu sync.Mutex
	var errs []error
	workqueue.ParallelizeUntil(ctx, stopParallelism, len(urls), func(i int) {
		err := call(ctx, urls[i])
		if err == nil {
			heard.Add(1)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	if len(errs) > 0 {
		klog.FromContext(ctx).V(1).Info("Some workers did not answer the request to stop", "workers", len(errs), "firstError", errors.Unwrap(errs[0]))
	}
	return int(heard.Load())
}

func call(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := stopClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // the body does not matter
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers: %w", url, errors.New(response.Status))
	}
	return nil
}
