package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/test/rig"
)

// giveBackTimeout is how long nodes that nobody needs are waited for to go.
const giveBackTimeout = 15 * time.Minute

// measureGiveBack has 100 nodes bought, and deletes their pods. The calls are those to all of the cloud's services.
func measureGiveBack(ctx context.Context, s *session, p peer) ([]found, error) {
	const pods = 100
	t, err := newTrial(ctx, s, "hundred", rig.Options{World: newWorld(group{"asg-small", small, 0, 200}, group{"asg-big", big, 0, 200})})
	if err != nil {
		return nil, err
	}
	defer t.stop()
	if err := t.start(ctx, p); err != nil {
		return nil, err
	}
	idle := time.Now()
	if err := sleep(ctx, time.Minute); err != nil {
		return nil, err
	}
	busy, err := t.submit(ctx, pods)
	if err != nil {
		return nil, err
	}
	if _, err := t.until(ctx, busy, pendingTimeout, t.running(pods)); err != nil {
		return nil, err
	}
	if err := sleep(ctx, time.Until(busy.Add(time.Minute))); err != nil {
		return nil, err
	}
	full := time.Now()
	if err := sleep(ctx, time.Minute); err != nil {
		return nil, err
	}
	began, none := time.Now(), int64(0)
	err = t.Client.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &none}, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	gone, err := t.until(ctx, began, giveBackTimeout, func(context.Context) (bool, error) { return len(t.Cloud.Instances()) == 0, nil })
	if err != nil {
		return nil, err
	}
	return []found{
		{"cloud calls in a minute without nodes or pods", number(float64(t.callsWithin(idle, time.Minute)))},
		{"cloud calls in the minute after 100 pods came", number(float64(t.callsWithin(busy, time.Minute)))},
		{"cloud calls in a minute with 100 nodes and nothing to do", number(float64(t.callsWithin(full, time.Minute)))},
		{"100 nodes not needed any more: all given back, s (of which 30 unneeded)", gone},
		{"100 nodes not needed any more: nodes still paid for at the end", number(float64(len(t.Cloud.Instances())))},
	}, nil
}
