package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"gpu-spot-autoscaler/test/rig"
)

const (
	leaseDuration = 3 * time.Second
	leaseName     = "gpu-spot-autoscaler"
	// logLines is more than a process writes, crashLines enough to see why it ended.
	logLines, crashLines = 1 << 20, 5
)

// replica is a candidate for the lease, which is started anew whenever it has ended, as a container is.
type replica struct {
	name    string
	process *rig.Autoscaler
	started time.Time
	// killed says that its end was our doing; it is not started before resume.
	killed bool
	resume time.Time
	// logs are of the processes that have ended.
	logs []string
}

func (one *replica) ended() bool {
	select {
	case <-one.process.Done():
		return true
	default:
		return false
	}
}

// replicas are the two there are. Safe for concurrent use.
type replicas struct {
	rig *rig.Rig
	mu  sync.Mutex
	all []*replica
	// crashes are the last words of processes that ended by themselves.
	crashes []string
}

func startReplicas(ctx context.Context, r *rig.Rig) (*replicas, error) {
	rs := &replicas{rig: r}
	for i := range 2 {
		one := &replica{name: fmt.Sprintf("replica-%d", i)}
		if err := rs.start(ctx, one); err != nil {
			return nil, errors.Join(err, rs.stop())
		}
		rs.all = append(rs.all, one)
	}
	return rs, nil
}

// start starts it under its name, which is its identity in the election: one that is back before its lease has run out
// goes on with it.
func (rs *replicas) start(ctx context.Context, one *replica) (err error) {
	one.started, one.killed = time.Now(), false
	one.process, err = rs.rig.StartAutoscaler(ctx, []string{"POD_NAME=" + one.name},
		"--leader-elect=true", "--leader-elect-lease-duration="+leaseDuration.String(),
		"--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=300ms",
		"--scan-interval=5s", "--scale-down-unneeded-time=10m", "--scale-down-unready-time=20m",
		"--reclaim-notice-period="+noticePeriod.String(),
	)
	return err
}

// revive starts what has ended, until ctx ends.
func (rs *replicas) revive(ctx context.Context) error {
	const pause = 50 * time.Millisecond
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		for _, one := range rs.all {
			if !one.ended() || one.killed && time.Now().Before(one.resume) {
				continue
			}
			one.logs = append(one.logs, one.process.Log(logLines))
			if !one.killed {
				rs.crashes = append(rs.crashes, one.process.Log(crashLines))
			}
			if err := rs.start(ctx, one); err != nil {
				return false, err
			}
		}
		return false, nil
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// leader is the replica that holds the lease and has renewed it since it was started; nil if none does.
func (rs *replicas) leader(ctx context.Context) (*replica, error) {
	lease, err := rs.rig.Client.CoordinationV1().Leases(rig.Namespace).Get(ctx, leaseName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, one := range rs.all {
		if !one.ended() && holds(lease, one.name, one.started) {
			return one, nil
		}
	}
	return nil, nil
}

func holds(lease *coordinationv1.Lease, name string, since time.Time) bool {
	holder, renewed := lease.Spec.HolderIdentity, lease.Spec.RenewTime
	return holder != nil && *holder == name && renewed != nil && renewed.After(since)
}

// awaitLeader waits for somebody to lead.
func (rs *replicas) awaitLeader(ctx context.Context) (leader *replica, err error) {
	const patience = 30 * time.Second
	waitErr := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		leader, err = rs.leader(ctx)
		return err == nil && leader != nil, nil
	})
	if waitErr != nil {
		return nil, fmt.Errorf("wait for a leader: %w", errors.Join(waitErr, err))
	}
	return leader, nil
}

// kill ends the replica's process with SIGKILL. It stays away for a while.
func (rs *replicas) kill(one *replica, away time.Duration) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	one.killed, one.resume = true, time.Now().Add(away)
	one.process.Kill()
}

// keepLogs writes all that the processes said, one file a replica.
func (rs *replicas) keepLogs(dir string) (err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, one := range rs.all {
		all := strings.Join(append(one.logs, one.process.Log(logLines)), "\n--- started anew\n")
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, one.name+".log"), []byte(all+"\n"), 0o644))
	}
	return err
}

func (rs *replicas) stop() (err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	for _, one := range rs.all {
		err = errors.Join(err, one.process.Stop())
	}
	return err
}
