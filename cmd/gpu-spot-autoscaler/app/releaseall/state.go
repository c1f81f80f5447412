package releaseall

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"gpu-spot-autoscaler/cmd/gpu-spot-autoscaler/app/options"
	"gpu-spot-autoscaler/pricing/ledger"
)

// readInstances reads from the cost ledger which instances there are, and what they cost. It needs no access to the cloud.
func (r *releaser) readInstances(ctx context.Context) (sets.Set[string], error) {
	ids := sets.New[string]()
	configMap, err := r.kube.CoreV1().ConfigMaps(r.namespace).Get(ctx, r.name+options.LedgerSuffix, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ids, nil
	}
	if err != nil {
		return ids, fmt.Errorf("read ConfigMap %s/%s: %w", r.namespace, r.name+options.LedgerSuffix, err)
	}
	running, err := ledger.RunningOf(configMap.BinaryData[options.StateKey])
	if err != nil {
		return ids, err
	}
	found := Instances{AsOf: running.At.UTC().Truncate(time.Second), Currency: running.Currency, Pools: map[string][]string{}}
	for _, line := range running.Lines {
		ids.Insert(line.Instances...)
		found.Count += len(line.Instances)
		found.PerHour += line.Price * float64(len(line.Instances))
		found.Pools[line.Pool] = append(found.Pools[line.Pool], line.Instances...)
	}
	r.report.Instances = &found
	return ids, nil
}

// removeState removes the ConfigMaps that the autoscaler keeps. The cost ledger and the memory of the market stay if something could not be
// released: the next run finds the instances of the pools in the ledger, and an autoscaler that was not stopped goes on with both.
func (r *releaser) removeState(ctx context.Context) error {
	names := []string{r.name + options.StatusSuffix}
	if !r.keepState && !r.report.failed() {
		names = append(names, r.name+options.MarketSuffix, r.name+options.LedgerSuffix)
	}
	for _, name := range names {
		removal := metav1.DeleteOptions{}
		if r.dryRun {
			removal.DryRun = []string{metav1.DryRunAll}
		}
		err := r.kube.CoreV1().ConfigMaps(r.namespace).Delete(ctx, name, removal)
		switch {
		case err == nil:
			r.report.ConfigMaps = append(r.report.ConfigMaps, name)
		case !apierrors.IsNotFound(err):
			r.fault("ConfigMap %s/%s stays: %v", r.namespace, name, err)
		}
	}
	return ctx.Err()
}
