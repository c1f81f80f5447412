package jobs

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
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
)

const (
	// stopPort and stopPath are where training code listens that was written for Elastic-Job-Supervisor, with the SDK that
	// belongs to it (kubeai.elastic): told to stop there, rank 0 saves its checkpoint, and all ranks exit with an error.
	stopPort = "9009"
	stopPath = "/stop"
	// stopTimeout bounds one call, stopWorkers how many are under way for one job.
	stopTimeout = 2 * time.Second
	stopWorkers = 32
)

// stopper is an adapter whose jobs may listen for being told to save their work and to stop.
type stopper interface {
	// Stop tells the job's workers, and returns how many of them heard it.
	Stop(ctx context.Context, job Job) (heard int, err error)
}

// Stop has a job save its work and end by itself, where it was submitted so as to be told on a port of its own, and returns how
// many of its pods heard that: none where it was not. It is to be suspended once it has ended. It may be told more than once.
func (r *Registry) Stop(ctx context.Context, job Job) (heard int, err error) {
	err = r.act(ctx, job, action{
		name: "stop", reason: ReasonStopped, fresh: true,
		message: "Told to save its work and to stop, on port " + stopPort + ": too few workers would outlive the reclaim of their nodes",
		do: func(ctx context.Context, adapter Adapter, job Job) error {
			stopper, ok := adapter.(stopper)
			if !ok || job.Finished || job.Suspended || queued(job.Object) {
				return ErrUnchanged
			}
			heard, err = stopper.Stop(ctx, job)
			if err == nil && heard == 0 {
				return ErrUnchanged
			}
			return err
		},
	})
	return heard, err
}

// Stop notes on the job that its end is our doing, and how often it was restarted before: to end is a failure for the operator.
// It marks the job as suspended before it tells it, so that a leader that comes after its end finds it and does suspend it.
func (t *trainingJob) Stop(ctx context.Context, job Job) (heard int, err error) {
	if job.Object.GetAnnotations()[api.AnnotationSupervisorSpot] != "true" {
		return 0, nil
	}
	selector := labels.Set{labelTrainingGroup: kaiGroup, labelTrainingJob: job.Name, labelTrainingRole: roleWorker}
	pods, err := t.client.CoreV1().Pods(job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()}) // no informer has addresses
	if err != nil {
		return 0, fmt.Errorf("finding its workers: %w", err)
	}
	urls := stopURLs(job.Object, pods.Items)
	if len(urls) == 0 {
		return 0, nil
	}
	status, err := fieldsOf(job.Object).maybe("status")
	if err != nil {
		return 0, err
	}
	restarts, err := status.count("restartCount", 0)
	if err != nil {
		return 0, err
	}
	if job, err = counted(job); err != nil {
		return 0, err
	}
	metadata := t.held(job, HeldSuspended, ReasonReclaim)
	annotations := metadata["annotations"].(map[string]any)
	annotations[api.AnnotationStopRequested] = t.clock.Now().UTC().Format(time.RFC3339)
	if !job.ToldToStop {
		annotations[api.AnnotationHeldRestarts] = strconv.Itoa(restarts) // else an earlier leader has noted it
	}
	if err := t.patchJob(ctx, job, patch{"metadata": metadata}); err != nil {
		return 0, err
	}
	return tell(ctx, urls), nil
}

// stopped says whether the job ended with a failure because it was told to.
func stopped(object *unstructured.Unstructured) bool {
	at, err := time.Parse(time.RFC3339, object.GetAnnotations()[api.AnnotationStopRequested])
	if err != nil {
		return false
	}
	text, _, _ := unstructured.NestedString(object.Object, "status", "completionTime")
	ended, err := time.Parse(time.RFC3339, text)
	return err != nil || !ended.Before(at) // the time is not noted for all failures
}

// stopURLs are those of the pods that run as workers of this very job. Pods in the network of their node are left out: who
// listens there may be another's. The address is the kubelet's to write, and nobody's own choice.
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

// metadataService is where ECS instances find their metadata and credentials. It is no address of the link, as those of other
// clouds are.
var metadataService = netip.MustParseAddr("100.100.100.200")

// teller goes to the address that it is given and nowhere else: through no proxy, and after no redirect.
var teller = &http.Client{
	Timeout:       stopTimeout,
	Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 4 << 10},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// tell calls all URLs, and returns how many of them answered that they have heard it.
func tell(ctx context.Context, urls []string) int {
	var heard atomic.Int64
	var mu sync.Mutex
	var errs []error
	workqueue.ParallelizeUntil(ctx, stopWorkers, len(urls), func(i int) {
		err := tellOne(ctx, urls[i])
		if err == nil {
			heard.Add(1)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	})
	if len(errs) > 0 {
		klog.FromContext(ctx).V(1).Info("Some workers did not hear that they are to stop", "workers", len(errs), "first", errors.Unwrap(errs[0]))
	}
	return int(heard.Load())
}

func tellOne(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := teller.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, _ = io.CopyN(io.Discard, response.Body, 4<<10) // what it says does not matter
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers: %w", url, errors.New(response.Status))
	}
	return nil
}
