package jobs

import "time"

// What tests of the package jobs_test look at.
var (
	JobActions       = jobActions
	SystemsInstalled = systemsInstalled
)

// IsInstalled says whether a system is installed, or may be.
func (r *Registry) IsInstalled(system string) bool { return r.installed.has(system) }

// WatchEnded returns a channel that is closed when the system's informers have ended.
func (r *Registry) WatchEnded(system string) <-chan struct{} {
	r.installed.mu.RLock()
	defer r.installed.mu.RUnlock()
	for on, watch := range r.installed.watches {
		if on.Name() == system {
			ended := make(chan struct{})
			go func() {
				watch.ended.Wait()
				close(ended)
			}()
			return ended
		}
	}
	return nil
}

// SetRefreshHostsAfter replaces the delays, and returns what restores them.
func SetRefreshHostsAfter(delays ...time.Duration) (restore func()) {
	before := refreshHostsAfter
	refreshHostsAfter = delays
	return func() { refreshHostsAfter = before }
}
