package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"time"

	"gpu-spot-autoscaler/test/rig"
)

// flags are those that every autoscaler of the session gets.
func (s *session) flags() []string {
	if s.profiles == "" {
		return nil
	}
	return []string{"--profiling"}
}

// profile takes a CPU profile of the process until the returned function is called, and a heap profile then, if the user
// asked for profiles.
func (s *session) profile(ctx context.Context, a *rig.Autoscaler, name string, slice time.Duration) (stop func()) {
	if s.profiles == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var slices sync.WaitGroup
	slices.Go(func() {
		// A profile is sent when its time is over, so it is taken in slices; the last one is lost.
		for i := 0; ctx.Err() == nil; i++ {
			s.save(ctx, a, fmt.Sprintf("profile?seconds=%.0f", slice.Seconds()), fmt.Sprintf("%s-%d.cpu.pprof", name, i))
		}
	})
	return func() {
		heap, done := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer done()
		s.save(heap, a, "heap", name+".heap.pprof")
		cancel()
		slices.Wait()
	}
}

// profileSelf takes a CPU profile of this process until the returned function is called, and one of all that it
// allocated since it started.
func (s *session) profileSelf(name string) (stop func() error, err error) {
	if s.profiles == "" {
		return func() error { return nil }, nil
	}
	cpu, err := os.Create(filepath.Join(s.profiles, name+".cpu.pprof"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return nil, errors.Join(err, cpu.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		allocations, err := os.Create(filepath.Join(s.profiles, name+".allocs.pprof"))
		if err != nil {
			return errors.Join(err, cpu.Close())
		}
		return errors.Join(cpu.Close(), pprof.Lookup("allocs").WriteTo(allocations, 0), allocations.Close())
	}, nil
}

// save writes what the process tells under /debug/pprof. What goes wrong is told and spoils no measurement.
func (s *session) save(ctx context.Context, a *rig.Autoscaler, what, file string) {
	if err := fetch(ctx, "http://"+a.Address()+"/debug/pprof/"+what, filepath.Join(s.profiles, file)); err != nil && ctx.Err() == nil {
		s.logf("profile: %v", err)
	}
}

func fetch(ctx context.Context, url, path string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(path, body, 0o644)
}
