package supervise

import (
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

// Kwok is the name of the component that is of the supervisor's own binary, and its sub-command there.
const Kwok = "kwok"

// Names of the components of the control plane, which are also their sub-commands and the names of their logs.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	scheduler         = "kube-scheduler"
	controllerManager = "kube-controller-manager"
)

// etcdSocket is where etcd serves the API server, relative to the cluster's directory, which is the working directory of
// every component: a relative path always fits the 108 bytes of a socket address, and no port is taken. etcd wants the
// name to look like host:port.
const etcdSocket = "etcd-client:0"

// layout is what the flags of all components are derived from.
type layout struct {
	dir             string // the cluster's directory, absolute
	kubernetes      *version.Version
	nodeGracePeriod time.Duration
	defaultRates    bool   // whether the scheduler and the controller manager make no more requests than they do by default
	workloads       bool   // whether Kubernetes 1.36 has its alpha API of Workloads and PodGroups
	auditLog        string // file, absolute; none where it is empty
	auditUsers      []string
}

func (l layout) path(name string) string       { return filepath.Join(l.dir, name) }
func (l layout) kubeconfig(user string) string { return l.path(user + ".kubeconfig") }

func (l layout) etcdFlags() []string { return []string{"--socket=" + etcdSocket} }

func (l layout) apiServerFlags() []string {
	return append(slices.Concat(l.admissionPolicyFlags(), l.auditFlags(), l.workloadFlags(), l.workloadAPIFlags()),
		"--etcd-servers=unix://"+etcdSocket,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // nobody reaches it through the Service
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file="+l.path(fileServingCert),
		"--tls-private-key-file="+l.path(fileServingKey),
		"--client-ca-file="+l.path(fileCA),
		"--anonymous-auth=false",
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+l.path(fileServiceAccount),
		"--service-account-signing-key-file="+l.path(fileServiceAccount),
	)
}

// admissionPolicyFlags switch on what deploy/manifests/optional/keep-off-reclaiming.yaml needs. MutatingAdmissionPolicy is
// alpha from Kubernetes 1.32, beta from 1.34, and on without asking from 1.36 (pkg/features of k8s.io/apiserver).
func (l layout) admissionPolicyFlags() []string {
	served := "v1beta1"
	switch {
	case l.kubernetes.AtLeast(version.MajorMinor(1, 36)):
		return nil
	case l.kubernetes.LessThan(version.MajorMinor(1, 34)):
		served = "v1alpha1"
	}
	return []string{
		"--feature-gates=MutatingAdmissionPolicy=true",
		"--runtime-config=admissionregistration.k8s.io/" + served + "=true",
	}
}

// auditFlags leave the log in its default mode, in which each request is written at once, and not in batches that would be
// lost with the process.
func (l layout) auditFlags() []string {
	if l.auditLog == "" {
		return nil
	}
	return []string{"--audit-policy-file=" + l.path(fileAuditPolicy), "--audit-log-path=" + l.auditLog}
}

// workloadFlags are for every component. Source: pkg/features/kube_features.go of Kubernetes 1.36.1.
func (l layout) workloadFlags() []string {
	if !l.workloads {
		return nil
	}
	return []string{"--feature-gates=GenericWorkload=true,GangScheduling=true,WorkloadWithJob=true"}
}

func (l layout) workloadAPIFlags() []string {
	if !l.workloads {
		return nil
	}
	return []string{"--runtime-config=scheduling.k8s.io/v1alpha2=true"}
}

func (l layout) schedulerFlags() []string {
	return append(append(l.rateFlags(), l.workloadFlags()...),
		"--kubeconfig="+l.kubeconfig(scheduler),
		"--secure-port=0",
		"--leader-elect=false",
		"--authentication-skip-lookup=true",
	)
}

// rateFlags let the scheduler and the controller manager work as fast as they can, unless that is not wanted.
func (l layout) rateFlags() []string {
	if l.defaultRates {
		return nil
	}
	return []string{"--kube-api-qps=5000", "--kube-api-burst=10000"}
}

// controllerManagerFlags leaves out the two controllers that want a cloud or a pod network.
func (l layout) controllerManagerFlags() []string {
	flags := append(append(l.rateFlags(), l.workloadFlags()...),
		"--kubeconfig="+l.kubeconfig(controllerManager),
		"--secure-port=0",
		"--leader-elect=false",
		"--controllers=*,-nodeipam,-cloud-node-lifecycle",
		"--service-account-private-key-file="+l.path(fileServiceAccount),
		"--root-ca-file="+l.path(fileCA),
		fmt.Sprintf("--node-monitor-grace-period=%s", l.nodeGracePeriod),
		fmt.Sprintf("--node-monitor-period=%s", min(5*time.Second, l.nodeGracePeriod/8)),
	)
	if l.defaultRates {
		return flags
	}
	return append(flags, "--concurrent-job-syncs=20", "--concurrent-gc-syncs=50")
}

func (l layout) kwokFlags() []string {
	return []string{
		"--kubeconfig=" + l.kubeconfig(Kwok),
		fmt.Sprintf("--node-grace-period=%s", l.nodeGracePeriod),
		fmt.Sprintf("--kubelet-version=v%s", l.kubernetes),
	}
}
