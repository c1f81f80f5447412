package options

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/autoscaler/cluster-autoscaler/config"

	"gpu-spot-autoscaler/cloudprovider/reclaim"
)

// newOnce declares the flags in a pod of the namespace infra. They are the process's, so that is done once.
var newOnce = sync.OnceValues(func() (*Options, error) {
	if err := os.Setenv("POD_NAMESPACE", "infra"); err != nil {
		return nil, err
	}
	return New()
})

// parse stands for the command line of a process.
func parse(t *testing.T, args ...string) *Options {
	t.Helper()
	o, err := newOnce()
	require.NoError(t, err)
	all := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, section := range o.Sections().FlagSets {
		all.AddFlagSet(section)
	}
	require.NoError(t, all.Parse(args))
	return o
}

// TestCommandLine is one test: Cluster Autoscaler reads its flags once in a process.
func TestCommandLine(t *testing.T) {
	o := parse(t,
		"--region=cn-hangzhou", "--cluster-name=c1", "--nodes=0:10:asg-1", "--nodes=1:2:asg-2", "--settle-window=2s",
		"--ess-endpoint=127.0.0.1:1", "--max-drain-parallelism=3", "--scale-down-unneeded-time=7m",
		"--leader-elect=false", "--reclaim-max-unconfirmed=3", "--node-fault-conditions=A=5m,B", "--node-fault-max-nodes=2", "-v=0")
	require.NoError(t, o.Complete())
	require.Empty(t, o.Validate())

	assert.Equal(t, "cn-hangzhou", o.Region)
	assert.Equal(t, 2*time.Second, o.SettleWindow)
	assert.Equal(t, "127.0.0.1:1", o.Endpoints.ESS)
	assert.Equal(t, intstr.FromInt32(3), o.ReclaimMaxUnconfirmed)
	assert.Equal(t, []string{"A=5m", "B"}, o.Faults.Conditions)
	assert.Equal(t, intstr.FromInt32(2), o.Faults.MaxNodes)
	assert.False(t, o.LeaderElection.LeaderElect)
	assert.Equal(t, "infra", o.LeaderElection.ResourceNamespace, "the lease is where the pod is")
	assert.Equal(t, Name, o.LeaderElection.ResourceName)

	core := o.Autoscaling
	assert.Equal(t, "c1", core.ClusterName)
	assert.Equal(t, []string{"0:10:asg-1", "1:2:asg-2"}, core.NodeGroups)
	assert.Equal(t, "infra", core.ConfigNamespace)
	assert.Equal(t, 7*time.Minute, core.NodeGroupDefaults.ScaleDownUnneededTime, "flags of Cluster Autoscaler work")
	assert.Equal(t, 3, core.MaxDrainParallelism, "a default of ours can be changed")

	assert.Equal(t, "least-price", core.ExpanderNames)
	assert.True(t, core.ScaleDownDelayTypeLocal)
	assert.False(t, core.WriteStatusConfigMap)
	assert.False(t, core.CordonNodeBeforeTerminate)
	assert.False(t, core.ProvisioningRequestEnabled)
	assert.Equal(t, 1000, core.MaxScaleDownParallelism)
}

func TestEveryFlagIsListedOnce(t *testing.T) {
	o := parse(t)
	seen := map[string]string{}
	for section, flags := range o.Sections().FlagSets {
		flags.VisitAll(func(f *pflag.Flag) {
			assert.Empty(t, seen[f.Name], "--%s is in %s, too", f.Name, section)
			seen[f.Name] = section
		})
	}
	for name, section := range map[string]string{
		"region": sectionCloud, "cluster-name": sectionCloud, "nodes": sectionCloud, "sts-endpoint": sectionCloud, "settle-window": sectionPurchases,
		"reclaim-mark-qps": sectionReclaims, "notice-address": sectionNotices, "deployment-name": sectionServing,
		"leader-elect": sectionElection, "v": sectionLogs, "feature-gates": sectionFeatures,
		"expander": sectionCore, "scan-interval": sectionCore, "logtostderr": sectionCore,
	} {
		assert.Equal(t, section, seen[name], name)
	}
	assert.NotContains(t, seen, "test.v")
	assert.True(t, o.Ours("region"))
	assert.True(t, o.Ours("expander"), "with a default of ours")
	assert.False(t, o.Ours("scan-interval"))
}

func TestDefaultsShowInHelp(t *testing.T) {
	parse(t)
	for name, want := range coreDefaults() {
		f := pflag.CommandLine.Lookup(name)
		if assert.NotNil(t, f, name) {
			assert.Equal(t, want, f.DefValue, name)
		}
	}
}

func TestManualExplainsEveryFlagOfOursWithItsDefault(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/settings.md")
	require.NoError(t, err)
	explained := defaultsInTables(string(text))
	flags := coreDefaults()
	delete(flags, "cloud-provider") // nobody has to choose these two
	delete(flags, "namespace")
	sections := parse(t).OurSections()
	for _, section := range sections.Order {
		sections.FlagSets[section].VisitAll(func(f *pflag.Flag) { flags[f.Name] = f.DefValue })
	}
	for name, value := range flags {
		said, ok := explained["--"+name]
		assert.True(t, ok, "--%s is not explained", name)
		if said != "" && !strings.HasPrefix(said, "$") && !strings.HasPrefix(said, "--") { // it says where the value comes from
			assert.Equal(t, readable(value), said, name)
		}
	}
	assert.Len(t, explained, len(flags), "flags that do not exist: %v", explained)
}

// defaultsInTables finds the tables that begin with flags and have a column for defaults. A row may be about several flags,
// and then has their defaults in the same order. The default is "" where the cell is no code.
func defaultsInTables(page string) map[string]string {
	code := regexp.MustCompile("`([^`]*)`")
	defaults := map[string]string{}
	column, inTable := 0, false
	for line := range strings.Lines(page) {
		cells := strings.Split(line, "|")
		if !inTable {
			column = slices.IndexFunc(cells, func(cell string) bool { return strings.HasPrefix(cell, " default") })
		}
		inTable = strings.HasPrefix(line, "|")
		if column < 0 || !strings.HasPrefix(line, "| `--") {
			continue
		}
		values := code.FindAllStringSubmatch(cells[column], -1)
		for i, flag := range code.FindAllStringSubmatch(cells[1], -1) {
			defaults[flag[1]] = ""
			if i < len(values) {
				defaults[flag[1]] = values[i][1]
			}
		}
	}
	return defaults
}

// readable is 5m for 5m0s, and 1h for 1h0m0s.
func readable(value string) string {
	if strings.HasSuffix(value, "m0s") {
		value = strings.TrimSuffix(value, "0s")
	}
	if strings.HasSuffix(value, "h0m") {
		value = strings.TrimSuffix(value, "0m")
	}
	return value
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		change func(*Options)
		want   string
	}{
		"complete options are good":   {change: func(*Options) {}},
		"explicit pools need no name": {change: func(o *Options) { o.Autoscaling.ClusterName, o.Autoscaling.NodeGroups = "", []string{"0:1:asg"} }},
		"region is required":          {func(o *Options) { o.Region = "" }, "--region is required"},
		"scheme must be one of two":   {func(o *Options) { o.CloudScheme = "ftp" }, "--cloud-scheme=ftp is neither http nor https"},
		"some pool must be meant":     {func(o *Options) { o.Autoscaling.ClusterName = "" }, "one of --cluster-name and --nodes is required: without either there is no pool to manage"},
		"no negative window":          {func(o *Options) { o.SettleWindow = -1 }, "--settle-window=-1ns is negative"},
		"prices outlive a failed look": {func(o *Options) { o.PriceMaxAge = 1 },
			"--price-max-age=1ns is less than twice --price-refresh-interval=1ns: every failed look at a price would stop purchases under a cap"},
		"no busy loop of polls":               {func(o *Options) { o.ReclaimPollInterval = 0 }, "--reclaim-poll-interval=0s is not positive"},
		"marks need a budget":                 {func(o *Options) { o.ReclaimRateLimits.MarkQPS = 0 }, "--reclaim-mark-qps=0 is not positive"},
		"growth is one of three things":       {func(o *Options) { o.MaxGrowth = "always" }, "--max-growth=always is neither buy nor free nor never"},
		"a drain waits for one of two things": {func(o *Options) { o.ReclaimReplaceUntil = "running" }, "--reclaim-replace-until=running is neither bought nor ready"},
		"notices need a sender": {func(o *Options) {
			o.Notices = NoticeOptions{Address: ":8443", CertFile: "tls.crt", KeyFile: "tls.key", Signatures: "check"}
		}, "--notice-address needs --notice-token-file"},
		"signatures are treated in one of three ways": {func(o *Options) {
			o.Notices = NoticeOptions{Address: ":8443", TokenFile: "token", CertFile: "tls.crt", KeyFile: "tls.key", Signatures: "believe"}
		}, "--notice-signature=believe is neither check, require nor ignore"},
		"a condition of programs is no fault": {func(o *Options) { o.Faults.Conditions = []string{"NvidiaXID79Error", "NvidiaXID31Error"} },
			`--node-fault-conditions: "NvidiaXID31Error": NvidiaXID31Error cannot be a fault: that Xid is an error of a program, not of the GPU`},
		"no notices, nothing to prove": {change: func(o *Options) { o.Notices = NoticeOptions{CertFile: "tls.crt"} }},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := &Options{
				CloudOptions: CloudOptions{Region: "r", CloudScheme: "https"}, PriceRefreshInterval: 1, PriceMaxAge: 2,
				ReclaimPollInterval: 1, ReclaimNoticePeriod: 1, ReclaimReplaceWait: 1, ReclaimReplaceUntil: "bought", MaxGrowth: "buy", ReclaimRateLimits: reclaim.DefaultRateLimits,
				Autoscaling: config.AutoscalingOptions{ClusterName: "c", ScanInterval: 1},
			}
			test.change(o)
			problems := o.Validate()
			if test.want == "" {
				assert.Empty(t, problems)
			} else if assert.Len(t, problems, 1) {
				assert.EqualError(t, problems[0], test.want)
			}
		})
	}
}

func TestANumberOrAShareIsRead(t *testing.T) {
	value := intstr.FromInt32(7)
	flag := intOrPercent{&value}
	for text, want := range map[string]intstr.IntOrString{
		"0": intstr.FromInt32(0), "12": intstr.FromInt32(12), "0%": intstr.FromString("0%"), "100%": intstr.FromString("100%"),
	} {
		require.NoError(t, flag.Set(text), text)
		assert.Equal(t, want, value)
		assert.Equal(t, text, flag.String())
	}
	for _, text := range []string{"", "-1", "-5%", "many", "10 %", "0.1"} {
		assert.ErrorContains(t, flag.Set(text), "neither a number", text)
	}
}
