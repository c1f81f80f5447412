package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// pushTimeout bounds the request to the endpoint for notices.
const pushTimeout = 10 * time.Second

// Suffixes of the names of the admission policies of the chart, and of their bindings: of what the autoscaler itself writes, of what others do,
// and that which has a dry run write nothing. A test compares them with the manifests.
var (
	ownPolicies    = []string{"", "-jobs", "-nodes", "-pods", "-requests", "-trainingjob-status"}
	otherPolicies  = []string{"-drills", "-marks"}
	dryRunPolicies = []string{"-dry-run"}
)

const (
	// agentSelector finds the node-agent of any release: one serves all of them.
	agentSelector = "app.kubernetes.io/name=gpu-spot-node-agent"
	pushSuffix    = "-notices"
)

// checkPolicies checks that the admission policies of the chart are there and deny.
func (e *clusterExam) checkPolicies(ctx context.Context) {
	admission := e.Kube.AdmissionregistrationV1()
	found, err := admission.ValidatingAdmissionPolicies().List(ctx, metav1.ListOptions{})
	if e.failed("the admission policies", err) {
		return
	}
	bindings, err := admission.ValidatingAdmissionPolicyBindings().List(ctx, metav1.ListOptions{})
	if e.failed("the bindings of admission policies", err) {
		return
	}
	expected, file := slices.Concat(ownPolicies, otherPolicies), "policies.yaml"
	if e.isDryRun {
		expected, file = slices.Concat(ownPolicies, dryRunPolicies), "optional/dry-run.yaml"
	}
	mendPolicy := "Install the chart, or deploy/manifests/" + file + ", of the version of the autoscaler"
	for _, suffix := range expected {
		name := e.Name + suffix
		at := slices.IndexFunc(found.Items, func(p admissionv1.ValidatingAdmissionPolicy) bool { return p.Name == name })
		if at < 0 {
			e.report.add(PolicyMissing, Error, name, "this ValidatingAdmissionPolicy is missing, which limits what the autoscaler may write", mendPolicy)
			continue
		}
		if !slices.ContainsFunc(bindings.Items, func(b admissionv1.ValidatingAdmissionPolicyBinding) bool {
			return b.Spec.PolicyName == name && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny)
		}) {
			e.report.add(PolicyMissing, Error, name, "no ValidatingAdmissionPolicyBinding has this policy deny anything", mendPolicy)
		}
		if ptr.Deref(found.Items[at].Spec.FailurePolicy, admissionv1.Fail) != admissionv1.Fail {
			e.report.add(PolicyMissing, Error, name, "its failurePolicy is Ignore, so that what it cannot decide is allowed", mendPolicy)
		}
	}
}

// checkAgent checks that the node-agent, if it is installed, is ready on all its nodes. It may be that of another release.
func (e *clusterExam) checkAgent(ctx context.Context) {
	agents, err := e.Kube.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: agentSelector})
	if e.failed("the node-agent", err) {
		return
	}
	e.lacksAgent = len(agents.Items) == 0
	for i := range agents.Items {
		agent := &agents.Items[i]
		if status := agent.Status; status.NumberReady < status.DesiredNumberScheduled {
			e.report.add(NodeAgent, Warning, agent.Namespace+"/"+agent.Name, fmt.Sprintf("the node-agent is ready on %d of %d nodes", status.NumberReady, status.DesiredNumberScheduled),
				"See why its pods are not ready: kubectl -n "+agent.Namespace+" describe pods -l "+agentSelector)
		}
	}
}

// checkPush checks that the endpoint for pushed notices, if it is installed, has an address and pods behind it.
func (e *clusterExam) checkPush(ctx context.Context) {
	name := e.Name + pushSuffix
	service, err := e.Kube.CoreV1().Services(e.Namespace).Get(ctx, name, metav1.GetOptions{})
	if e.lacksPush = apierrors.IsNotFound(err); e.lacksPush || e.failed("the endpoint for pushed notices", err) {
		return
	}
	object := e.Namespace + "/" + name
	if service.Spec.Type == corev1.ServiceTypeLoadBalancer && len(service.Status.LoadBalancer.Ingress) == 0 {
		e.report.add(PushUnreachable, Error, object, "its load balancer has no address", "See the Events of the Service, and its annotations in push.service of the chart's values")
	}
	behind, err := e.Kube.DiscoveryV1().EndpointSlices(e.Namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name})
	if !e.failed("the endpoints of pushed notices", err) && !anyEndpoint(behind.Items) {
		e.report.add(PushUnreachable, Error, object, "no pod is behind the Service to which notices are pushed", "See whether the pods of the autoscaler run, and whether the selector of the Service is theirs")
	}
}

// anyEndpoint returns whether a pod is behind a Service. One that is not ready takes notices, too.
func anyEndpoint(list []discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(list, func(slice discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(endpoint discoveryv1.Endpoint) bool { return len(endpoint.Addresses) > 0 })
	})
}

// checkPushURL asks the endpoint for notices for something that it refuses: any answer shows that it can be reached. The query of the URL, which may
// have the token, is told nobody.
func checkPushURL(ctx context.Context, r *Report, pushURL string, roots *tls.Config) {
	ctx, cancel := context.WithTimeout(ctx, pushTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, pushURL, nil)
	if err == nil {
		var response *http.Response
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = roots
		defer transport.CloseIdleConnections()
		if response, err = (&http.Client{Transport: transport}).Do(request); err == nil {
			response.Body.Close()
			// Package push refuses what is no POST, whoever asks.
			if response.StatusCode == http.StatusMethodNotAllowed {
				return
			}
			err = errors.New("it answers " + response.Status + ", which is not what the autoscaler answers")
		}
	}
	if ofURL := (*url.Error)(nil); errors.As(err, &ofURL) {
		err = ofURL.Err
	}
	endpoint, _, _ := strings.Cut(pushURL, "?")
	r.add(PushUnreachable, Error, endpoint, fmt.Sprintf("notices cannot be pushed there, asked from here: %v", err),
		"See load balancer, DNS name, certificate and access control list of the endpoint")
	r.sort()
}
