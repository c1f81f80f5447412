package supervise

import (
	"fmt"
	"path/filepath"
	"time"
)

// Names of the components, which are also their sub-commands and the names of their logs.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	Scheduler         = "kube-scheduler"
	ControllerManager = "kube-controller-manager"
	Kwok              = "kwok"
)

// EtcdSocket is where etcd serves the API server, relative to the cluster's directory, which is the working directory of
// every component: a relative path always fits the 108 bytes of a socket address, and no port is taken. etcd wants the
// name to look like host:port.
const EtcdSocket = "etcd-client:0"

// layout is what the flags of all components are derived from.
type layout struct {
	dir             string // the cluster's directory, absolute
	nodeGracePeriod time.Duration
}

func (l layout) path(name string) string       { return filepath.Join(l.dir, name) }
func (l layout) kubeconfig(user string) string { return l.path(user + ".kubeconfig") }

func (l layout) apiServerFlags() []string {
	return []string{
		"--etcd-servers=unix://" + EtcdSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // nobody reaches it through the Service
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + l.path(fileServingCert),
		"--tls-private-key-file=" + l.path(fileServingKey),
		"--client-ca-file=" + l.path(fileCA),
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		// What deploy/manifests/optional/keep-off-reclaiming.yaml needs, which Kubernetes 1.33 has only for those who ask.
		"--feature-gates=MutatingAdmissionPolicy=true",
		"--runtime-config=admissionregistration.k8s.io/v1alpha1=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.path(fileServiceAccount),
		"--service-account-signing-key-file=" + l.path(fileServiceAccount),
	}
}

func (l layout) schedulerFlags() []string {
	return []string{
		"--kubeconfig=" + l.kubeconfig(Scheduler),
		"--secure-port=0",
		"--leader-elect=false",
		"--authentication-skip-lookup=true",
		"--kube-api-qps=5000",
		"--kube-api-burst=10000",
	}
}

// controllerManagerFlags leaves out the two controllers that want a cloud or a pod network.
func (l layout) controllerManagerFlags() []string {
	return []string{
		"--kubeconfig=" + l.kubeconfig(ControllerManager),
		"--secure-port=0",
		"--leader-elect=false",
		"--controllers=*,-nodeipam,-cloud-node-lifecycle",
		"--service-account-private-key-file=" + l.path(fileServiceAccount),
		"--root-ca-file=" + l.path(fileCA),
		fmt.Sprintf("--node-monitor-grace-period=%s", l.nodeGracePeriod),
		fmt.Sprintf("--node-monitor-period=%s", min(5*time.Second, l.nodeGracePeriod/8)),
		"--concurrent-job-syncs=20",
		"--concurrent-gc-syncs=50",
		"--kube-api-qps=5000",
		"--kube-api-burst=10000",
	}
}

func (l layout) kwokFlags() []string {
	return []string{
		"--kubeconfig=" + l.kubeconfig(Kwok),
		fmt.Sprintf("--node-grace-period=%s", l.nodeGracePeriod),
	}
}
