package ess

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

// Launch creates pending instances, or as many as there is room for if the request takes them.
func (f *fakeCloud) Launch(_ context.Context, request alicloud.LaunchRequest) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.launches = append(f.launches, request)
	err := next(&f.launchErrs)
	if err != nil && (!f.lost && f.lostFrom == 0 || len(f.launches) <= f.lostFrom) {
		return nil, err
	}
	if ids, again := f.answers[request.ClientToken]; again {
		return ids, err
	}
	amount := request.Amount
	if f.launchRoom != nil {
		amount = min(amount, *f.launchRoom)
		if amount < request.MinAmount {
			return nil, errNoStock
		}
		*f.launchRoom -= amount
	}
	var ids []string
	for range amount {
		f.born++
		id := fmt.Sprintf("i-%04d", f.born)
		f.launched[id] = alicloud.Instance{ID: id, Status: alicloud.StatusPending, InstanceType: request.InstanceType, ZoneID: request.ZoneID,
			SpotStrategy: request.SpotStrategy, Created: time.Now().Truncate(time.Minute), Tags: request.Tags}
		ids = append(ids, id)
	}
	f.answers[request.ClientToken] = ids
	return ids, err
}

func (f *fakeCloud) LaunchedInstances(_ context.Context, tag, value string) ([]alicloud.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.launchesErr != nil && (f.unlistable == "" || f.unlistable == value) {
		return nil, f.launchesErr
	}
	var found []alicloud.Instance
	for _, instance := range f.launched {
		if instance.Tags[tag] == value && !slices.Contains(f.hidden, instance.ID) {
			found = append(found, instance)
		}
	}
	return found, nil
}

func (f *fakeCloud) Instances(_ context.Context, ids []string) ([]alicloud.Instance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []alicloud.Instance
	for _, id := range ids {
		if instance, exists := f.launched[id]; exists && !slices.Contains(f.unlisted, id) {
			found = append(found, instance)
		}
	}
	return found, nil
}

func (f *fakeCloud) Attach(_ context.Context, request alicloud.AttachRequest) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attachErr != nil {
		return "", f.attachErr
	}
	for _, id := range request.InstanceIDs {
		if err := f.unattachable[id]; err != nil {
			return "", err
		}
	}
	f.attached = append(f.attached, request.InstanceIDs...)
	for _, id := range request.InstanceIDs {
		machine := f.launched[id]
		f.instances[id] = alicloud.ScalingInstance{ID: id, ScalingGroupID: request.ScalingGroupID, ScalingActivityID: "asa-attach",
			LifecycleState: alicloud.LifecycleInService, InstanceType: machine.InstanceType, ZoneID: machine.ZoneID,
			SpotStrategy: machine.SpotStrategy, Created: time.Now()} // ESS says when it was added to the scaling group
	}
	return "asa-attach", nil
}

func (f *fakeCloud) Delete(_ context.Context, ids []string, _ string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deleted = append(f.deleted, ids...)
	for _, id := range ids {
		delete(f.launched, id)
	}
	return nil
}

// start has the launched instances run.
func (f *fakeCloud) start() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, instance := range f.launched {
		instance.Status = alicloud.StatusRunning
		f.launched[id] = instance
	}
}
