package plan

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/cloudprovider/ess/snapshot"
	"gpu-spot-autoscaler/cloudprovider/status"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/ask"
	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/pricing"
)

const (
	// defaultTimeout bounds the whole command.
	defaultTimeout = 5 * time.Minute
	// outputText and outputJSON are the forms of the answer.
	outputText, outputJSON = "text", "json"
)

// Request is what a plan is to be made of.
type Request struct {
	// Options are the settings of the autoscaler, Kube is how its cluster is reached.
	Options   *options.Options
	Kube      *rest.Config
	Documents []*Document
	// Shortages are those that the leader knows.
	Shortages map[pricing.Offering]snapshot.Shortage
}

// flags are those of the command.
type flags struct {
	ask.Flags
	// root is the autoscaler's own command, whose flags are read from its Deployment into options.
	root     *cobra.Command
	options  *options.Options
	foretell func(context.Context, Request) (*Plan, error)

	files                             []string
	namespace, output, credentialsDir string
	log                               bool
	timeout                           time.Duration
}

// NewCommand returns the command "plan". The root is the autoscaler's own command, whose flags set the options. The last argument runs the
// autoscaler.
func NewCommand(root *cobra.Command, opts *options.Options, foretell func(context.Context, Request) (*Plan, error)) *cobra.Command {
	f := flags{root: root, options: opts, foretell: foretell}
	command := &cobra.Command{
		Use:   "plan -f FILE [-- AUTOSCALER FLAGS]",
		Short: "Say what would be bought now for the jobs in a file, and what it would cost",
		Long: `Says what the autoscaler would buy now if the jobs in the files were submitted: offerings and how many instances, the price, the runner-up,
and the expected cost until the job is over if it states its work (annotation ` + api.AnnotationWork + `). Or it says why nothing would be bought.

It runs the autoscaler itself, in this process, over your cluster and your account as they are now, with the pods that the jobs would have. It
writes nothing: neither in the cluster nor in the cloud. Its settings are those of the autoscaler's Deployment; those after -- come on top.

From a laptop it uses your own kubeconfig and credentials.`,
		Example: `  gpu-spot-autoscaler plan -f job.yaml
  gpu-spot-autoscaler plan -f job.yaml -o json
  helm template train ./train | gpu-spot-autoscaler plan -f - -n research
  gpu-spot-autoscaler plan -f job.yaml -- --region=cn-hangzhou --cluster-name=my-cluster  # before it is installed
  kubectl -n kube-system exec -i deploy/gpu-spot-autoscaler -- /gpu-spot-autoscaler plan -f - < job.yaml`,
		SilenceUsage: true, SilenceErrors: true,
		Args: func(command *cobra.Command, args []string) error {
			if at := command.ArgsLenAtDash(); at > 0 || at < 0 && len(args) > 0 {
				return fmt.Errorf("%q: give files with -f, and flags of the autoscaler after --", args[0])
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), f.timeout)
			defer cancel()
			return f.run(ctx, args, command.InOrStdin(), command.OutOrStdout())
		},
	}
	fs := command.Flags()
	fs.StringArrayVarP(&f.files, "filename", "f", nil, "File with the jobs; - is the standard input. Can be given several times.")
	fs.StringVarP(&f.namespace, "namespace", "n", "default", "Namespace of objects that name none.")
	fs.StringVarP(&f.output, "output", "o", outputText, "Form of the answer: text or json.")
	fs.StringVar(&f.credentialsDir, "credentials-dir", "", "Directory with the access key for Alibaba Cloud, as --credentials-dir of the autoscaler. Default: that of the Deployment if it is here, else credentials come from the environment.")
	fs.BoolVar(&f.log, "log", false, "Print the log of the autoscaler to the standard error.")
	fs.DurationVar(&f.timeout, "timeout", defaultTimeout, "How long all of it may take.")
	f.AddTo(fs)
	command.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		if name, unknown := strings.CutPrefix(err.Error(), "unknown flag: --"); unknown && root.Flags().Lookup(name) != nil { // the error has no type
			return fmt.Errorf("%w: it is a flag of the autoscaler, and those come after --", err)
		}
		return err
	})
	return command
}

func (f *flags) run(ctx context.Context, settings []string, in io.Reader, out io.Writer) error {
	write, known := map[string]func(*Plan, io.Writer) error{outputText: (*Plan).WriteText, outputJSON: (*Plan).WriteJSON}[f.output]
	if !known {
		return fmt.Errorf("-o %s: want %s or %s", f.output, outputText, outputJSON)
	}
	if len(f.files) == 0 {
		return errors.New("-f is required: a file with the jobs, or - for the standard input")
	}
	request := Request{Options: f.options}
	var err error
	if request.Documents, err = ReadFiles(f.files, in, f.namespace); err != nil {
		return err
	}
	if !f.log {
		klog.SetLogger(logr.Discard())
	}
	if request.Kube, err = f.Cluster.Config(); err != nil {
		return err
	}
	if err := f.readSettings(ctx, request.Kube, settings); err != nil {
		return err
	}
	var notes []string
	if request.Shortages, err = f.shortages(ctx); err != nil {
		notes = append(notes, fmt.Sprintf("The leader could not be asked what was out of stock lately: %v", err))
	}
	made, err := f.foretell(ctx, request)
	if err != nil {
		return err
	}
	made.Notes = append(made.Notes, notes...)
	return write(made, out)
}

// readSettings sets the options to those of the autoscaler's Deployment, and then to the given ones.
func (f *flags) readSettings(ctx context.Context, kube *rest.Config, given []string) error {
	client, err := kubernetes.NewForConfig(kube)
	if err != nil {
		return fmt.Errorf("make the Kubernetes client: %w", err)
	}
	settings, err := ArgumentsOf(ctx, client, f.Namespace, f.Name)
	if apierrors.IsNotFound(err) && len(given) > 0 {
		settings, err = []string{"--namespace=" + f.Namespace, "--deployment-name=" + f.Name, "--leader-elect-resource-name=" + f.Name}, nil
	}
	if err != nil {
		return fmt.Errorf("%w. Give --autoscaler-namespace and --autoscaler-name, or after -- the flags of an autoscaler that is not installed", err)
	}
	if err := f.root.ParseFlags(append(settings, given...)); err != nil {
		return fmt.Errorf("flags of the autoscaler: %w", err)
	}
	opts := f.options
	opts.DryRun = false // or Complete names another lease, which is part of the notes on purchases
	if err := opts.Complete(); err != nil {
		return err
	}
	opts.Notices, opts.Secure = options.NoticeOptions{}, options.SecureOptions{} // nothing is served
	if f.credentialsDir != "" {
		opts.CredentialsDir = f.credentialsDir
	} else if _, err := os.Stat(opts.CredentialsDir); err != nil {
		opts.CredentialsDir = ""
	}
	if err := utilerrors.NewAggregate(opts.Validate()); err != nil {
		return fmt.Errorf("flags of the autoscaler: %w", err)
	}
	return nil
}

// shortages returns those that the leader knows.
func (f *flags) shortages(ctx context.Context) (map[pricing.Offering]snapshot.Shortage, error) {
	leader, err := f.Leader()
	if err != nil {
		return nil, err
	}
	body, err := leader.Get(ctx, status.Path, nil)
	if err != nil {
		return nil, err
	}
	var served status.Status
	if err := json.Unmarshal(body, &served); err != nil {
		return nil, fmt.Errorf("the leader answers what is no status; is it of another version? %w", err)
	}
	return ShortagesOf(served.Pools), nil
}

// ShortagesOf returns the shortages of the pools.
func ShortagesOf(pools []status.Pool) map[pricing.Offering]snapshot.Shortage {
	found := map[pricing.Offering]snapshot.Shortage{}
	for i := range pools {
		for _, offering := range pools[i].Offerings {
			if offering.Shortage != nil {
				found[pricing.Offering{InstanceType: offering.InstanceType, Zone: offering.Zone, Spot: offering.PurchaseOption == api.PurchaseSpot}] = snapshot.ShortageOf(*offering.Shortage)
			}
		}
	}
	return found
}
