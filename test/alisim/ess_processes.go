package alisim

import "slices"

func suspendProcesses(c *cloud, r *request) (reply, error) {
	return changeProcesses(c, r, func(suspended, named []string) []string {
		for _, p := range named {
			if !slices.Contains(suspended, p) {
				suspended = append(suspended, p)
			}
		}
		return suspended
	})
}

func resumeProcesses(c *cloud, r *request) (reply, error) {
	return changeProcesses(c, r, func(suspended, named []string) []string {
		return slices.DeleteFunc(suspended, func(p string) bool { return slices.Contains(named, p) })
	})
}

func changeProcesses(c *cloud, r *request, change func(suspended, named []string) []string) (reply, error) {
	g, err := c.lookup(r)
	if err != nil {
		return nil, err
	}
	named, err := r.list("Process", len(processes))
	if err != nil {
		return nil, err
	}
	if len(named) == 0 {
		return nil, missing("Process.1")
	}
	for _, p := range named {
		if !slices.Contains(processes, p) {
			return nil, invalid("Process", p)
		}
	}
	g.SuspendedProcesses = change(slices.Clone(g.SuspendedProcesses), named)
	c.lookAfter(g)
	return reply{}, nil
}
