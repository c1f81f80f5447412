package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/cloudprovider/alicloud/client"
	"gpu-spot-autoscaler/cloudprovider/alicloud/rpc"
)

// run does what the options say and returns the exit code.
func (o options) run(ctx context.Context, output io.Writer) int {
	if o.list {
		fmt.Fprint(output, listing())
		return exitSame
	}
	code, err := o.ask(ctx, output)
	if err != nil {
		fmt.Fprintln(output, "contract:", err)
		return exitFailed
	}
	return code
}

func (o options) ask(ctx context.Context, output io.Writer) (code int, err error) {
	chosen, err := o.chosen()
	if err != nil {
		return exitFailed, err
	}
	a, err := o.connect(ctx, output)
	if err != nil {
		return exitFailed, err
	}
	defer a.client.Close()
	if o.giveBack {
		return exitSame, o.giveBackAll(ctx, a)
	}
	if o.spend {
		if err := o.announce(ctx, output, a, chosen); err != nil {
			return exitFailed, err
		}
	}
	asking, stop := context.WithTimeoutCause(ctx, o.timeout, errors.New("the time of -timeout is over"))
	defer stop()
	real := askAll(asking, a, chosen, o.spend)
	if ctx.Err() != nil {
		return exitFailed, errors.New("interrupted; whatever was bought has been given back, unless it says otherwise above")
	}

	simulated, err := askSimulated(ctx, chosen)
	if err != nil {
		return exitFailed, err
	}
	r := newReport(chosen, real, simulated)
	r.Region, r.Spent = o.region, o.spend
	r.print(output)
	path := filepath.Join(o.out, "contract.json")
	if err := r.write(path); err != nil {
		return exitFailed, err
	}
	fmt.Fprintln(output, "\nreport:", path)
	return r.exitCode(), nil
}

// chosen are the questions that are to be asked.
func (o options) chosen() ([]question, error) {
	all := questions()
	if o.only == "" {
		return all, nil
	}
	names := strings.Split(o.only, ",")
	for _, name := range names {
		if !slices.ContainsFunc(all, func(q question) bool { return q.name == name }) {
			return nil, fmt.Errorf("there is no question %q; -list names them", name)
		}
	}
	return slices.DeleteFunc(all, func(q question) bool { return !slices.Contains(names, q.name) }), nil
}

// whatItNeeds is told where something of it is missing.
const whatItNeeds = "it asks a real account: it needs -region, -group (a scaling group to look at) and credentials that the autoscaler would find too " +
	"(ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET, or the RAM role of the instance); see docs/contract.md"

// connect finds the account and the group.
func (o options) connect(ctx context.Context, output io.Writer) (*account, error) {
	if o.region == "" || o.group == "" {
		return nil, errors.New(whatItNeeds)
	}
	settings := rpc.Options{Region: o.region, Credentials: o.credentials}
	if o.endpoint != "" {
		if err := loopback(o.endpoint); err != nil {
			return nil, err
		}
		settings.Scheme = "http"
		settings.Endpoints = rpc.Endpoints{ESS: o.endpoint, ECS: o.endpoint, VPC: o.endpoint, STS: o.endpoint}
	}
	client, err := client.New(settings)
	if err != nil {
		return nil, err
	}
	a := &account{
		pace: cmp.Or(o.pace, realPace()), client: client, region: o.region, group: o.group, desired: o.desired, offers: map[string]offer{},
	}
	a.log = func(format string, args ...any) { fmt.Fprintf(output, "  "+format+"\n", args...) }
	for _, group := range []string{o.group, o.desired} {
		if group == "" {
			continue
		}
		if _, err := a.describeGroup(ctx, group); err != nil {
			return nil, explained(err)
		}
	}
	if o.kubeconfig != "" {
		if a.nodes, err = cluster(o.kubeconfig); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// explained adds what to do about credentials that are missing or wrong.
func explained(err error) error {
	if alicloud.ClassOf(err) == alicloud.Unauthorized {
		return fmt.Errorf("%s\n(%w)", whatItNeeds, err)
	}
	return err
}

// loopback refuses every endpoint but a simulator's on this machine, so that no credential is sent anywhere else.
func loopback(endpoint string) error {
	host, _, err := net.SplitHostPort(endpoint)
	if err != nil {
		return fmt.Errorf("-endpoint %q is not of the form host:port", endpoint)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("-endpoint %q is not a loopback address: only a simulator on this machine may stand for Alibaba's endpoints", endpoint)
	}
	return nil
}

func cluster(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("-kubeconfig: %w", err)
	}
	return kubernetes.NewForConfig(config)
}

// giveBackAll releases what a run that was killed has left.
func (o options) giveBackAll(ctx context.Context, a *account) error {
	for _, group := range []string{o.group, o.desired} {
		if group == "" {
			continue
		}
		if err := a.mayRemoveFrom(ctx, group); err != nil {
			return err
		}
		a.log("giving back every instance that scaling group %s has bought", group)
		if err := a.giveBack(ctx, newHoldings(group), quietUncertain); err != nil {
			return err
		}
	}
	return nil
}

// announce says what will be bought and what it may cost, or why nothing may be bought.
func (o options) announce(ctx context.Context, output io.Writer, a *account, chosen []question) error {
	for _, desired := range []bool{false, true} {
		group, most, count := o.group, 0, 0
		if desired {
			group = o.desired
		}
		for _, q := range chosen {
			if q.spends.anything() && q.spends.desired == desired {
				most, count = max(most, q.spends.instances), count+1
			}
		}
		if group == "" || count == 0 {
			continue
		}
		if _, err := a.mayBuyIn(ctx, group, desired); err != nil {
			return err
		}
		if err := a.mayGiveBack(ctx, group); err != nil {
			return err
		}
		buy, err := a.cheapest(ctx, group)
		if err != nil {
			return err
		}
		const hours = minutesEach / 60.
		fmt.Fprintf(output, "CONTRACT_SPEND=yes: %d questions buy in scaling group %s, at most %d × %s in %s at a time, at %.3f %s an hour each.\n"+
			"They take about %.1f hours, so about %.2f %s in all; at worst, if the dearest type came instead, pay as you go: %.2f %s.\n"+
			"Whatever is bought is given back, also when this is interrupted; that takes some minutes.\n\n",
			count, group, most, buy.instanceType, buy.zone, buy.price(), buy.currency,
			float64(count)*hours, float64(count)*hours*float64(most)*buy.price(), buy.currency,
			float64(count)*hours*float64(most)*buy.dearest, buy.currency)
	}
	return nil
}

// minutesEach is about how long a question that spends has its instances.
const minutesEach = 6

// askAll asks one question after the other. Nothing more is bought once something could not be given back.
func askAll(ctx context.Context, a *account, asked []question, spend bool) []answer {
	answers := make([]answer, len(asked))
	var stuck notGivenBack
	for n, q := range asked {
		var err error
		switch {
		case ctx.Err() != nil:
			answers[n] = answer{Error: "not asked: " + context.Cause(ctx).Error()}
		case q.ask != nil:
			answers[n] = answerOf(q.ask(ctx, a))
		case !spend:
			answers[n] = answer{Unknown: "not asked, since it buys; say CONTRACT_SPEND=yes"}
		case len(stuck.instances) > 0:
			answers[n] = answer{Error: "not asked, since instances were not given back"}
		default:
			a.log("asking %s", q.name)
			var found facts
			found, err = a.try(ctx, q)
			answers[n] = answerOf(found, err)
		}
		if errors.As(err, &stuck) {
			a.log("%v", stuck)
		}
	}
	return answers
}
