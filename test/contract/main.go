// Command contract asks a real Alibaba Cloud account the questions on whose answers the product depends, asks the
// simulator in its strict temper the same, and prints where the two differ. What it asks, and what that may cost, is in
// docs/contract.md.
//
//	contract -region <region> -group <scaling group> [flags]
//
// Credentials come from the environment, as the autoscaler's do. It only reads, unless CONTRACT_SPEND=yes and the
// scaling group bears the tag gpu-spot.autoscaling/contract=may-spend; then it buys up to two instances at a time and
// gives them back, also when it is interrupted.
//
// It exits with 0 where every answer agrees with the simulator's, 1 where one differs, and 2 where it could not ask:
// without credentials, permission or a suitable group, where a question failed, and where an instance was not given back.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"k8s.io/klog/v2"
)

// Exit codes.
const (
	exitSame    = 0
	exitDiffers = 1
	exitFailed  = 2
)

// options are the flags, and what the environment says.
type options struct {
	region, group, desired string
	kubeconfig             string
	endpoint               string
	out                    string
	only                   string
	giveBack, list         bool
	timeout                time.Duration
	// spend says that questions may buy.
	spend bool
	// credentials are those of the environment where nil.
	credentials credentials.CredentialsProvider
	// pace is that of a real account where nil.
	pace *pace
}

func main() {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)     // retries and the like; what matters is in the answers
	signal.Ignore(syscall.SIGPIPE) // who reads the output may be gone, and what was bought must be given back all the same
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	o, err := parse(os.Args[1:], os.Getenv("CONTRACT_SPEND"), os.Stderr)
	if err != nil {
		os.Exit(exitFailed)
	}
	code := o.run(ctx, os.Stdout)
	stop() // only now: a second interrupt must not end the giving back
	os.Exit(code)
}

func parse(args []string, spend string, output io.Writer) (options, error) {
	o := options{spend: spend == "yes"}
	set := flag.NewFlagSet("contract", flag.ContinueOnError)
	set.SetOutput(output)
	set.StringVar(&o.region, "region", "", "region of the account, such as cn-hangzhou")
	set.StringVar(&o.group, "group", "", "id of the scaling group that the questions are about; they buy in it with CONTRACT_SPEND=yes")
	set.StringVar(&o.desired, "desired-group", "", "id of a second scaling group, with a desired capacity, for the questions about such; may be left out")
	set.StringVar(&o.kubeconfig, "kubeconfig", "", "file for a cluster whose Nodes are looked at; may be left out")
	set.StringVar(&o.endpoint, "endpoint", "", "host:port of a running simulator to be asked as if it were the account, over plain HTTP; loopback only")
	set.StringVar(&o.out, "out", "out", "directory for contract.json")
	set.StringVar(&o.only, "only", "", "names of the questions to ask, separated by commas; all where empty")
	set.BoolVar(&o.giveBack, "give-back", false, "release what a run that was killed has left in the groups, and ask nothing")
	set.BoolVar(&o.list, "list", false, "print the questions as docs/contract.md has them, and ask nothing")
	set.DurationVar(&o.timeout, "timeout", 3*time.Hour, "when to stop asking; what was bought is given back after that")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		err := fmt.Errorf("unknown argument %q", set.Arg(0))
		fmt.Fprintln(output, "contract:", err)
		return o, err
	}
	return o, nil
}
