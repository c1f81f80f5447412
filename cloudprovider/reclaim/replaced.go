package reclaim

// isReplaced asks after the Nodes of the doomed pods. A Node whose pods had a place once is not asked after again.
func (c *Controller) isReplaced(l loss) bool {
	all := true
	for _, pod := range l.doomed {
		all = c.isNodeReplaced(pod.Spec.NodeName, pod.notice) && all
	}
	return all
}

// noteReplacements has it measured when there was a place for what is on the Nodes, whether anything waits for that or not.
func (c *Controller) noteReplacements() {
	for _, node := range c.markedNodes() {
		if notice, doomed := c.noticeOf(node); doomed && len(drainable(c.podsOn(node.Name))) > 0 {
			c.isNodeReplaced(node.Name, notice)
		}
	}
}

func (c *Controller) isNodeReplaced(name string, notice Notice) bool {
	h := &c.handshakes
	h.mu.Lock()
	known := h.replaced.Has(name)
	h.mu.Unlock()
	if known {
		return true
	}
	if !c.Replaced(name) {
		return false
	}
	h.mu.Lock()
	first := !h.replaced.Has(name)
	h.replaced.Insert(name)
	h.mu.Unlock()
	if first {
		noticeToReplacement.WithLabelValues(string(notice.Source)).Observe(c.Clock.Since(notice.FirstSeen).Seconds())
	}
	return true
}
