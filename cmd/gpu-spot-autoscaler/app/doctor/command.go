package doctor

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
	"gpu-spot-autoscaler/cloudprovider/ess/pool"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/exit"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/kubeconfig"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
)

const (
	// defaultTimeout bounds the whole examination.
	defaultTimeout = 3 * time.Minute
	// qps and burst are for requests to the API server.
	qps, burst = 50, 100

	outputText, outputJSON = "text", "json"

	skipCloud, skipCluster = "cloud", "cluster"
	userAgent              = "gpu-spot-autoscaler-doctor"
)

// flags are those of the command.
type flags struct {
	options.CloudOptions
	cluster                              kubeconfig.Flags
	clusterName, namespace, name, output string
	nodes, skip, ignore                  []string
	pushURL                              string
	timeout                              time.Duration
}

// NewCommand returns the command "doctor".
func NewCommand() *cobra.Command {
	f := flags{}
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Check account, scaling groups and cluster, before the install or afterwards",
		Long: `Checks whether all is there that the autoscaler needs: credentials, permissions, scaling groups with their tags, quotas and addresses,
and what in the cluster would work against it. For each finding it prints a sentence that says what is wrong, and one that says what to do.

It changes nothing. Permissions to read are checked by reading, and permissions to write by requests that ECS only checks (DryRun) or that
are about an instance that does not exist. What cannot be found out in this way is listed as not proven.

From a laptop it uses your own kubeconfig and credentials: use those of the autoscaler for Alibaba Cloud, or you check your own permissions.

Exit codes: 0 if nothing is found, 1 if something is, 2 if the command could not begin.`,
		Example: `  gpu-spot-autoscaler doctor --region=cn-hangzhou --cluster-name=my-cluster
  gpu-spot-autoscaler doctor --region=cn-hangzhou --cluster-name=my-cluster --skip=cluster -o json
  kubectl -n kube-system exec deploy/gpu-spot-autoscaler -- /gpu-spot-autoscaler doctor --region=cn-hangzhou --cluster-name=my-cluster --skip=cluster`,
		Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), f.timeout)
			defer cancel()
			return run(ctx, f, command.OutOrStdout())
		},
	}
	f.addTo(command.Flags())
	return command
}

func (f *flags) addTo(fs *pflag.FlagSet) {
	f.CloudOptions.AddFlags(fs)
	f.cluster.AddTo(fs)
	fs.StringVar(&f.clusterName, "cluster-name", "", "Check the scaling groups that have the tags of this cluster: --cluster-name of the autoscaler.")
	fs.StringArrayVar(&f.nodes, "nodes", nil, "Check this scaling group too, whatever its tags: <min>:<max>:<scaling-group-id>, as --nodes of the autoscaler. Can be given several times.")
	fs.StringVar(&f.namespace, "autoscaler-namespace", "kube-system", "Namespace of the autoscaler.")
	fs.StringVar(&f.name, "autoscaler-name", options.Name, "Name of the autoscaler's Deployment: that of the release.")
	fs.StringVar(&f.pushURL, "push-url", "", "Where notices are pushed to, as EventBridge or CloudMonitor have it. Without it only the Service is checked.")
	fs.StringSliceVar(&f.skip, "skip", nil, "Do not check: "+skipCloud+" or "+skipCluster+".")
	fs.StringSliceVar(&f.ignore, "ignore", nil, "Codes of findings that are known and accepted.")
	fs.StringVarP(&f.output, "output", "o", outputText, "Form of the answer: text or json.")
	fs.DurationVar(&f.timeout, "timeout", defaultTimeout, "How long all of it may take.")
}

func (f *flags) skips(what string) bool { return slices.Contains(f.skip, what) }

func (f *flags) validate() error {
	var wrong []error
	fail := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if f.output != outputText && f.output != outputJSON {
		fail("-o %s: want %s or %s", f.output, outputText, outputJSON)
	}
	for _, what := range f.skip {
		if what != skipCloud && what != skipCluster {
			fail("--skip=%s: want %s or %s", what, skipCloud, skipCluster)
		}
	}
	for _, code := range f.ignore {
		if !slices.Contains(Codes, Code(code)) {
			fail("--ignore=%s: there is no such code", code)
		}
	}
	if !f.skips(skipCloud) {
		wrong = append(wrong, f.CloudOptions.Validate()...)
		if f.clusterName == "" && len(f.nodes) == 0 {
			fail("one of --cluster-name and --nodes is required, or --skip=%s", skipCloud)
		}
	}
	return utilerrors.NewAggregate(wrong)
}

func run(ctx context.Context, f flags, out io.Writer) error {
	if err := f.validate(); err != nil {
		return err
	}
	d, err := f.doctor()
	if err != nil {
		return err
	}
	report := d.Examine(ctx)
	if f.pushURL != "" {
		checkPushURL(ctx, &report, f.pushURL, &tls.Config{MinVersion: tls.VersionTLS12})
	}
	report.Findings = slices.DeleteFunc(report.Findings, func(found Finding) bool { return slices.Contains(f.ignore, string(found.Code)) })
	if err := report.write(out, f.output); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	if len(report.Findings) > 0 {
		return exit.Faults
	}
	return nil
}

// doctor makes the clients. It sends no request.
func (f *flags) doctor() (*Doctor, error) {
	bounds, err := pool.ParseBounds(f.nodes)
	if err != nil {
		return nil, err
	}
	d := &Doctor{Clock: clock.RealClock{}, Region: f.Region, ClusterName: f.clusterName, Nodes: bounds, Namespace: f.namespace, Name: f.name}
	if !f.skips(skipCloud) {
		if d.Cloud, err = client.New(rpc.Options{
			Region: f.Region, Scheme: f.CloudScheme, Endpoints: f.Endpoints, CredentialsDir: f.CredentialsDir, UserAgent: userAgent,
		}); err != nil {
			return nil, err
		}
	}
	if f.skips(skipCluster) {
		return d, nil
	}
	config, err := f.cluster.Config()
	if err != nil {
		return nil, fmt.Errorf("%w, or --skip=%s", err, skipCluster)
	}
	config.QPS, config.Burst, config.UserAgent = qps, burst, userAgent
	if d.Kube, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("make the Kubernetes client: %w", err)
	}
	return d, nil
}

// write prints the report.
func (r *Report) write(w io.Writer, form string) error {
	if form == outputJSON {
		encoder := json.NewEncoder(w)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(r)
	}
	var text strings.Builder
	for _, found := range r.Findings {
		fmt.Fprintln(&text, found)
	}
	if len(r.Findings) == 0 {
		fmt.Fprintln(&text, "nothing found")
	}
	for _, what := range r.NotProven {
		fmt.Fprintln(&text, "not proven: "+what)
	}
	_, err := io.WriteString(w, text.String())
	return err
}
