package walkthrough

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/cluster"
	"gpu-spot-autoscaler/test/rig"
)

const (
	// systemNode is the Node on which the pods of the autoscaler run.
	systemNode = "system"
	// kubeletPeriod is how often the kubelet looks at its pods, and readinessPeriod how often it asks whether they are ready. A real one
	// keeps to the period of the probe.
	kubeletPeriod, readinessPeriod = 100 * time.Millisecond, time.Second
	heartbeat                      = 5 * time.Second
	// public is a registry from which everybody may pull.
	public = "public.example.com"
)

// kubelet plays the kubelet of one Node. The containers of its pods are processes of the autoscaler's real binary, with the arguments,
// variables, tokens and pull Secrets that their manifest says, whatever made it. What differs is where they find the control plane and the
// cloud, and where they listen.
type kubelet struct {
	t    *testing.T
	rig  *rig.Rig
	dir  string
	node *corev1.Node
	// address is where the secure servers of the pods listen, to which the API server's proxy connects.
	address string
	done    sync.WaitGroup
	// mutex guards what is running, which the test looks at, too.
	mutex   sync.Mutex
	running map[types.UID]*container
	// refused are pods that could not be started. The first ends the walk: nothing waits for them that would not wait in vain.
	refused map[types.UID]bool
	endWalk context.CancelFunc
}

// container is the process of a pod.
type container struct {
	pod     *corev1.Pod
	command *exec.Cmd
	// address is where it listens for probes, secure where callers need a token.
	address, secure string
	log             string
	started         metav1.Time
	// exited is closed when the process has ended.
	exited chan struct{}
	// ready is what the pod was reported to be last, over whether its end was reported. probed is when it was asked last.
	ready, over bool
	told        time.Time
	probed      time.Time
}

// startKubelet registers the Node and runs its pods until the test ends. It calls endWalk if it cannot run one.
func startKubelet(t *testing.T, r *rig.Rig, endWalk context.CancelFunc) *kubelet {
	t.Helper()
	k := &kubelet{t: t, rig: r, dir: t.TempDir(), address: ownAddress(t), running: map[types.UID]*container{}, refused: map[types.UID]bool{}, endWalk: endWalk}
	logs := httptest.NewTLSServer(k.handler())
	_, port, err := net.SplitHostPort(logs.Listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, k.register(t.Context(), port))
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	k.done.Add(1)
	go func() {
		defer k.done.Done()
		k.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		k.done.Wait()
		logs.Close()
		for _, c := range k.running {
			if t.Failed() {
				t.Logf("the last words of %s:\n%s", c.pod.Name, tail(c.log, 25))
			}
		}
	})
	return k
}

// register creates the Node, which has no GPU and is not spot.
func (k *kubelet) register(ctx context.Context, port string) (err error) {
	node := cluster.NewFakeNode(systemNode, corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"), corev1.ResourcePods: resource.MustParse("110"),
	})
	delete(node.Annotations, cluster.NodeAnnotation) // kwok is not to play it
	node.Spec.ProviderID = k.rig.World.Region + ".i-system"
	node.Labels["node.alibabacloud.com/spot-strategy"] = "NoSpot"
	if k.node, err = k.rig.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return err
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return err
	}
	k.node.Status = node.Status
	k.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	k.node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	k.node.Status.NodeInfo.KubeletVersion = "v1.36.1"
	return k.beat(ctx)
}

// beat says that the Node is Ready.
func (k *kubelet) beat(ctx context.Context) error {
	now := metav1.Now()
	k.node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}}
	status, err := json.Marshal(map[string]any{"status": k.node.Status})
	if err != nil {
		return err
	}
	_, err = k.rig.Client.CoreV1().Nodes().Patch(ctx, systemNode, types.StrategicMergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

func (k *kubelet) run(ctx context.Context) {
	beaten := time.Now()
	for {
		select {
		case <-ctx.Done():
			for _, c := range k.running {
				_ = c.command.Process.Kill() // it may have ended
				<-c.exited
			}
			return
		case <-time.After(kubeletPeriod):
		}
		if time.Since(beaten) >= heartbeat {
			if beaten = time.Now(); k.beat(ctx) != nil && ctx.Err() == nil {
				k.t.Log("the kubelet cannot say that its Node is ready, and tries again")
			}
		}
		pods, err := k.rig.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + systemNode})
		if err != nil {
			continue // the next look may do better
		}
		for i := range pods.Items {
			if err := k.sync(ctx, &pods.Items[i]); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				k.t.Errorf("the kubelet, about pod %s: %v", pods.Items[i].Name, err)
			}
		}
	}
}

// sync does what is to be done about a pod.
func (k *kubelet) sync(ctx context.Context, pod *corev1.Pod) (err error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	c := k.running[pod.UID]
	switch {
	case c == nil && pod.DeletionTimestamp != nil:
		return k.remove(ctx, pod)
	case c == nil && pod.Status.Phase == corev1.PodPending && !k.refused[pod.UID]:
		if c, err = k.start(ctx, pod); err != nil {
			if ctx.Err() == nil {
				k.refused[pod.UID] = true
				k.endWalk()
			}
			return err
		}
		k.running[pod.UID] = c
		return k.report(ctx, pod, c)
	case c == nil:
		return nil
	}
	if pod.DeletionTimestamp != nil && c.told.IsZero() {
		c.told = time.Now()
		_ = c.command.Process.Signal(syscall.SIGTERM) // it may have ended
	}
	select {
	case <-c.exited:
		if pod.DeletionTimestamp != nil {
			return k.remove(ctx, pod)
		}
		if c.over {
			return nil
		}
		if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways {
			k.t.Errorf("%s has ended by itself, %v:\n%s", pod.Name, c.command.ProcessState, tail(c.log, 25))
		}
		c.over = true
		if err := k.report(ctx, pod, c); err != nil {
			c.over = false
			return err
		}
		return nil
	default:
	}
	if time.Since(c.probed) < readinessPeriod {
		return nil
	}
	c.probed = time.Now()
	ready := c.probe(ctx)
	if ready == c.ready {
		return nil
	}
	c.ready = ready
	if err := k.report(ctx, pod, c); err != nil {
		c.ready = !ready // what the pod says still
		return err
	}
	return nil
}

func (k *kubelet) remove(ctx context.Context, pod *corev1.Pod) error {
	return k.rig.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To[int64](0), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
}

// start runs the only container of the pod.
func (k *kubelet) start(ctx context.Context, pod *corev1.Pod) (*container, error) {
	spec := pod.Spec.Containers[0]
	if err := k.pull(ctx, pod, spec.Image); err != nil {
		return nil, err
	}
	kubeconfig, err := k.rig.Cluster.PodKubeconfig(ctx, pod)
	if err != nil {
		return nil, err
	}
	environment, err := k.environment(ctx, pod)
	if err != nil {
		return nil, err
	}
	c := &container{pod: pod, log: filepath.Join(k.dir, pod.Name+".log"), started: metav1.Now(), exited: make(chan struct{})}
	arguments := append(slices.Clone(spec.Args), "--kubeconfig="+kubeconfig)
	if spec.Args[0] != "release-all" {
		if c.address, err = freeAddress(ctx, "127.0.0.1"); err != nil {
			return nil, err
		}
		if c.secure, err = freeAddress(ctx, k.address); err != nil {
			return nil, err
		}
		cloud := k.rig.Cloud
		arguments = append(arguments, "--address="+c.address, "--secure-address="+c.secure, "--cloud-scheme=http",
			"--ess-endpoint="+cloud.Endpoint(), "--ecs-endpoint="+cloud.Endpoint(), "--vpc-endpoint="+cloud.Endpoint(), "--sts-endpoint="+cloud.STSEndpoint())
	}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	c.command = exec.Command(k.rig.BinaryPath(), arguments...)
	c.command.Env = append(os.Environ(), environment...)
	c.command.Stdout, c.command.Stderr = log, log
	c.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = c.command.Wait() // ProcessState has it
		close(c.exited)
	}()
	return c, nil
}

func freeAddress(ctx context.Context, host string) (string, error) {
	port, err := rig.FreePort(ctx, host)
	return net.JoinHostPort(host, port), err
}

// pull refuses to pull the image unless a pull Secret of the pod names the host that is in the name of the image, as the registry does.
// Source: kubernetes.io/docs/concepts/containers/images, "Interpretation of config.json".
func (k *kubelet) pull(ctx context.Context, pod *corev1.Pod, image string) error {
	host, _, _ := strings.Cut(image, "/")
	if host == public {
		return nil
	}
	for _, reference := range pod.Spec.ImagePullSecrets {
		secret, err := k.rig.Client.CoreV1().Secrets(pod.Namespace).Get(ctx, reference.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var config struct{ Auths map[string]any }
		if err := json.Unmarshal(secret.Data[corev1.DockerConfigJsonKey], &config); err != nil {
			return err
		}
		if _, named := config.Auths[host]; named {
			return nil
		}
	}
	return fmt.Errorf("ImagePullBackOff: no pull Secret of %s is for the registry %s", pod.Name, host)
}

// environment returns the variables of the container. Paths of projected tokens become those of files with such tokens.
func (k *kubelet) environment(ctx context.Context, pod *corev1.Pod) (variables []string, err error) {
	files := map[string]string{}
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		for _, volume := range pod.Spec.Volumes {
			if volume.Name != mount.Name || volume.Projected == nil {
				continue
			}
			for _, source := range volume.Projected.Sources {
				if source.ServiceAccountToken == nil {
					continue
				}
				file := filepath.Join(k.dir, pod.Name+"-"+volume.Name)
				if err := k.projectToken(ctx, pod, source.ServiceAccountToken, file); err != nil {
					return nil, err
				}
				files[mount.MountPath+"/"+source.ServiceAccountToken.Path] = file
			}
		}
	}
	for _, variable := range pod.Spec.Containers[0].Env {
		value := variable.Value
		if variable.ValueFrom != nil {
			value = map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace}[variable.ValueFrom.FieldRef.FieldPath]
		}
		if file, projected := files[value]; projected {
			value = file
		}
		variables = append(variables, variable.Name+"="+value)
	}
	return append(variables, "SSL_CERT_FILE="+k.rig.Cloud.CAFile(), "GORACE=halt_on_error=1"), nil
}

func (k *kubelet) projectToken(ctx context.Context, pod *corev1.Pod, projection *corev1.ServiceAccountTokenProjection, file string) error {
	token, err := k.rig.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{projection.Audience}, ExpirationSeconds: projection.ExpirationSeconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(token.Status.Token), 0o600)
}

// probe returns whether the container is ready: by its readiness probe, if it has one.
func (c *container) probe(ctx context.Context) bool {
	probe := c.pod.Spec.Containers[0].ReadinessProbe
	if probe == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(probe.TimeoutSeconds)*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+probe.HTTPGet.Path, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	return errors.Join(response.Body.Close()) == nil && response.StatusCode < http.StatusBadRequest
}

// report writes the status of the pod.
func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, c *container) error {
	now := metav1.Now()
	ready := corev1.ConditionFalse
	if c.ready && !c.over {
		ready = corev1.ConditionTrue
	}
	status := corev1.ContainerStatus{Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: ready == corev1.ConditionTrue, Started: ptr.To(true)}
	pod.Status.Phase = corev1.PodRunning
	if c.over {
		code := int32(c.command.ProcessState.ExitCode())
		status.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, StartedAt: c.started, FinishedAt: now, Reason: "Completed"}
		pod.Status.Phase = corev1.PodSucceeded
		if code != 0 {
			pod.Status.Phase, status.State.Terminated.Reason = corev1.PodFailed, "Error"
		}
	} else {
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: c.started}
	}
	pod.Status.PodIP, pod.Status.PodIPs = k.address, []corev1.PodIP{{IP: k.address}}
	pod.Status.StartTime, pod.Status.ContainerStatuses = &c.started, []corev1.ContainerStatus{status}
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		value := ready
		if condition == corev1.PodInitialized {
			value = corev1.ConditionTrue
		}
		pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions, func(has corev1.PodCondition) bool { return has.Type == condition })
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: value, LastTransitionTime: now})
	}
	_, err := k.rig.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// tail returns the last lines of a file.
func tail(file string, lines int) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
