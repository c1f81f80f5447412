package ess

import (
	"slices"

	"gpu-spot-autoscaler/test/alisim/protocol"
	"gpu-spot-autoscaler/test/alisim/scaling"
)

func (s groupActions) suspendProcesses(r *protocol.Request) (protocol.Reply, error) {
	return s.changeProcesses(r, func(suspended, named []string) []string {
		for _, p := range named {
			if !slices.Contains(suspended, p) {
				suspended = append(suspended, p)
			}
		}
		return suspended
	})
}

func (s groupActions) resumeProcesses(r *protocol.Request) (protocol.Reply, error) {
	return s.changeProcesses(r, func(suspended, named []string) []string {
		return slices.DeleteFunc(suspended, func(p string) bool { return slices.Contains(named, p) })
	})
}

func (s groupActions) changeProcesses(r *protocol.Request, change func(suspended, named []string) []string) (protocol.Reply, error) {
	g, err := lookup(s.Engine, r)
	if err != nil {
		return nil, err
	}
	named, err := r.List("Process", len(scaling.Processes))
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		return nil, protocol.Missing("Process.1")
	}
	for _, p := range named {
		if !slices.Contains(scaling.Processes, p) {
			return nil, protocol.Invalid("Process", p)
		}
	}
	g.SuspendedProcesses = change(slices.Clone(g.SuspendedProcesses), named)
	g.CheckSoon()
	return protocol.Reply{}, nil
}
