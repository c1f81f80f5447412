package walkthrough

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

var recording = flag.String("recording", "", "File to which a picture of the terminal is written: docs/terminal.svg.")

// firstChart is the chart of the first version, as helm package has made it.
const firstChart = "deploy/testdata/gpu-spot-autoscaler-0.1.0.tgz"

// The second release, which has the Helm name of the first in another namespace, and the scaling group that it manages.
const (
	secondName, secondNamespace  = "gpu-spot-b", "team-b"
	secondCluster, secondGroup   = "team-b", "asg-bp1teamb"
	firstAccount, secondAccount  = "system:serviceaccount:kube-system:gpu-spot-autoscaler", "system:serviceaccount:team-b:gpu-spot-b"
	installedKinds, clusterKinds = "deployments,jobs,serviceaccounts,roles,rolebindings,services,poddisruptionbudgets,configmaps,leases",
		"clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings"
)

// releases are two releases in one cluster.
type releases struct{ *walk }

// twoPools returns a region with a scaling group for each of two releases.
func twoPools() alisim.World {
	w := newWorld()
	first := w.Pools[0]
	first.DesiredCapacity, first.SpotInstanceRemedy, first.CompensateWithOnDemand = nil, false, ptr.To(false)
	first.Tags = owned(clusterName)
	second := first
	second.ID, second.Tags = secondGroup, owned(secondCluster)
	w.Pools = []alisim.Pool{first, second}
	return w
}

func owned(cluster string) map[string]string {
	return map[string]string{"k8s.io/cluster-autoscaler/enabled": "true", "k8s.io/cluster-autoscaler/" + cluster: "owned"}
}

// The first chart is installed, upgraded under a running job to the present one, joined by a second release, and left alone again. In the end
// nothing is on the cluster of either.
func TestAReleaseOfTheFirstChartIsUpgradedJoinedByAnotherAndUninstalled(t *testing.T) {
	s := releases{newWalk(t, twoPools())}
	s.Cloud.SetPrice(a10, "cn-hangzhou-h", 6, 10)
	s.Cloud.SetPrice(a10, "cn-hangzhou-i", 4, 10)
	s.prepare()

	s.shell.ask("helm install gpu-spot-autoscaler " + firstChart + " --namespace kube-system --values values.yaml --set clusterName=" + clusterName)
	s.awaitReady(rig.Namespace, "gpu-spot-autoscaler")
	s.shell.ask("kubectl apply -f deploy/examples/ack/job.yaml && kubectl wait --for=jsonpath='{.status.ready}'=1 job/first --timeout=2m")
	node := s.shell.ask("kubectl get pods -l job-name=first -o jsonpath='{.items[*].spec.nodeName}'")

	// An upgrade with --reuse-values has none of the values that are new since.
	s.shell.ask("helm upgrade gpu-spot-autoscaler deploy/chart/gpu-spot-autoscaler --namespace kube-system --reuse-values")
	s.awaitReady(rig.Namespace, "gpu-spot-autoscaler")
	assert.Equal(t, node, s.shell.ask("kubectl get pods -l job-name=first -o jsonpath='{.items[*].spec.nodeName}'"), "the job goes on where it was")
	assert.Len(t, s.zones(), 1, "nothing is bought twice, and nothing is given back")
	before := s.installed()

	s.joinedBySecond()
	s.shell.ask("helm uninstall gpu-spot-autoscaler --namespace " + secondNamespace)
	assert.Empty(t, s.left(secondName))
	assert.Subset(t, s.installed(), before, "the first release is whole")
	s.shell.ask("kubectl delete job first && kubectl apply -f deploy/examples/ack/job.yaml && kubectl wait --for=jsonpath='{.status.ready}'=1 job/first --timeout=2m")

	s.record()
	s.shell.ask("helm uninstall gpu-spot-autoscaler --namespace kube-system")
	assert.Empty(t, s.left("gpu-spot-"))
	_, err := s.Client.BatchV1().Jobs(metav1.NamespaceDefault).Get(t.Context(), "first", metav1.GetOptions{})
	assert.NoError(t, err, "jobs of users stay")

	s.runPages(pagesOf(t, "install")...)
	assert.Empty(t, s.left("gpu-spot-release-all"))
}

// prepare writes the values and makes what a release needs before it is installed.
func (s releases) prepare() {
	values := fmt.Sprintf(`region: %s
imageRegistry: registry.example.com/gpu
imagePullSecrets: [{name: pull}]
credentials: {rrsa: {roleARN: "acs:ram::%[2]s:role/gpu-spot-autoscaler", oidcProviderARN: "acs:ram::%[2]s:oidc-provider/ack-rrsa-c1"}}
secureServing: {enabled: true}
`, region, account)
	require.NoError(s.t, os.WriteFile(filepath.Join(s.shell.dir, "values.yaml"), []byte(values), 0o600))
	for _, namespace := range []string{rig.Namespace, secondNamespace} {
		s.shell.ask("kubectl create namespace " + namespace + " --dry-run=client -o yaml | kubectl apply -f - && kubectl -n " + namespace +
			" create secret docker-registry pull --docker-server=registry.example.com --docker-username=u --docker-password=p")
	}
	// The commands of a person that ask Alibaba Cloud find it where the simulated one is.
	script := pointed(s.BinaryPath(), cloudFlags(s.Cloud.Endpoint()))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.shell.dir, ".tools", "gpu-spot-autoscaler"), []byte(script), 0o755))
}

// awaitReady waits until the release acts, and has no problems.
func (s releases) awaitReady(namespace, name string) {
	s.t.Helper()
	s.shell.ask(fmt.Sprintf("kubectl -n %s rollout status deployment/%s --timeout=3m", namespace, name))
	rig.Eventually(s.t, soon, name+" says that its leader is ready", func(ctx context.Context) (bool, error) {
		status, err := s.Client.CoreV1().ConfigMaps(namespace).Get(ctx, name+"-status", metav1.GetOptions{})
		return err == nil && strings.Contains(status.Data["status"], "ready: true") && strings.Contains(status.Data["status"], "problems: []"), nil
	})
}

// joinedBySecond installs the second release beside the first. Each has its own pools, lease and state.
func (s releases) joinedBySecond() {
	t := s.t
	const other = ` --set 'otherReleases[0].namespace=%s' --set 'otherReleases[0].serviceAccount=%s'`
	s.shell.ask("helm upgrade gpu-spot-autoscaler deploy/chart/gpu-spot-autoscaler --namespace kube-system --values values.yaml --set clusterName=" +
		clusterName + fmt.Sprintf(other, secondNamespace, secondName))
	refused, state, _ := s.shell.execute("helm install gpu-spot-autoscaler deploy/chart/gpu-spot-autoscaler --namespace " + secondNamespace +
		" --values values.yaml --set clusterName=" + secondCluster)
	assert.False(t, state.Success(), "without a name of its own it would take the roles of the first")
	assert.Contains(t, refused, "cannot be imported into the current release")
	s.shell.ask("helm install gpu-spot-autoscaler deploy/chart/gpu-spot-autoscaler --namespace " + secondNamespace + " --values values.yaml --set clusterName=" +
		secondCluster + " --set fullnameOverride=" + secondName + fmt.Sprintf(other, rig.Namespace, "gpu-spot-autoscaler"))
	s.awaitReady(secondNamespace, secondName)

	pools := func(namespace, name string) string {
		s.openService(namespace, name)
		return s.shell.ask(fmt.Sprintf("gpu-spot-autoscaler top -o json --autoscaler-namespace=%s --autoscaler-name=%s", namespace, name))
	}
	first, second := pools(rig.Namespace, "gpu-spot-autoscaler"), pools(secondNamespace, secondName)
	assert.Contains(t, first, group)
	assert.NotContains(t, first, secondGroup)
	assert.Contains(t, second, secondGroup)
	assert.NotContains(t, second, group)

	// Each may say that it holds a job, though the admission policy of the other speaks of that, too. Nobody else may.
	const hold = "kubectl label job first gpu-spot.autoscaling/held=suspended --dry-run=server --as="
	for _, account := range []string{firstAccount, secondAccount} {
		rig.Eventually(t, soon, account+" may hold a job", func(context.Context) (bool, error) {
			_, state, _ := s.shell.execute(hold + account)
			return state.Success(), nil
		})
	}
	printed, state, _ := s.shell.execute(hold + "somebody --as-group=system:masters")
	if !assert.True(t, state.Success(), "an administrator may override: %s", printed) {
		return
	}
	printed, state, _ = s.shell.execute("kubectl create clusterrolebinding editor --clusterrole=edit --user=editor && " + hold + "editor")
	assert.False(t, state.Success())
	assert.Contains(t, printed, "only the autoscaler")
}

// installed returns what is there of the first release, but for its pods.
func (s releases) installed() []string {
	s.t.Helper()
	return slices.DeleteFunc(s.left("gpu-spot-"), func(name string) bool { return strings.Contains(name, secondName) })
}

// left returns the objects whose name has the prefix, but for pods and Events.
func (s releases) left(prefix string) (names []string) {
	s.t.Helper()
	for _, kinds := range []string{installedKinds, clusterKinds} {
		for _, name := range strings.Fields(s.shell.ask("kubectl get " + kinds + " -A -o name")) {
			if strings.Contains(name, "/"+prefix) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// record runs what an operator would look at first, and draws it as it was printed.
func (s releases) record() {
	s.t.Helper()
	big := strings.NewReplacer("name: first", "name: wide", "nvidia.com/gpu: 1", "nvidia.com/gpu: 4").Replace(s.shell.ask("cat deploy/examples/ack/job.yaml"))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.shell.dir, "wide.yaml"), []byte(big), 0o600))
	one := strings.NewReplacer("name: first", "name: train").Replace(s.shell.ask("cat deploy/examples/ack/job.yaml"))
	require.NoError(s.t, os.WriteFile(filepath.Join(s.shell.dir, "train.yaml"), []byte(one), 0o600))
	var session []typedCommand
	for _, text := range []string{
		"gpu-spot-autoscaler plan -f train.yaml",
		"kubectl apply -f wide.yaml",
		"gpu-spot-autoscaler explain pod default/$(kubectl get pods -l job-name=wide -o jsonpath='{.items[0].metadata.name}')",
		"gpu-spot-autoscaler top -o text",
	} {
		if strings.Contains(text, "explain") {
			s.shell.ask("kubectl wait --for=condition=PodScheduled=false pod -l job-name=wide --timeout=1m")
			rig.Eventually(s.t, soon, "the leader has looked at the pod", func(context.Context) (bool, error) {
				printed, state, _ := s.shell.execute(text)
				return state.Success() && strings.Contains(printed, group) && !strings.Contains(printed, "no loop has looked at it"), nil
			})
		}
		session = append(session, typedCommand{text, s.shell.ask(text)})
	}
	s.shell.ask("kubectl delete job wide")
	s.t.Logf("%v", session)
	drawn := drawTerminal(session)
	if *recording != "" {
		require.NoError(s.t, os.WriteFile(filepath.Join(root, *recording), []byte(drawn), 0o644))
		return
	}
	shipped, err := os.ReadFile(filepath.Join(root, "docs/terminal.svg"))
	require.NoError(s.t, err)
	assert.Equal(s.t, sets.List(wordsOf(string(shipped))), sets.List(wordsOf(drawn)), "docs/terminal.svg is older than what is printed: run make pictures")
}
