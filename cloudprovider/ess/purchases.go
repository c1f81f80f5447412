package ess

// Purchases has purchases made together: those of a loop, and those of several offerings for one gang. Only the goroutine of core's loop
// may use it.
type Purchases struct{ manager *manager }

// Gather has the purchases that follow wait for SendGathered. Those of one offering become one.
func (p *Purchases) Gather() { p.manager.buyer.Gather() }

// SendGathered buys what was gathered. A refusal by the cloud shows as failed instances.
func (p *Purchases) SendGathered() { p.manager.buyer.SendGathered(p.manager.ctx) }

// BeginBundle has the calls of AtomicIncreaseSize that follow buy nothing until CommitBundle, which buys all of it at once. If any of it
// comes short, all of it is given back, but for instances on which pods run by then.
func (p *Purchases) BeginBundle() { p.manager.buyer.BeginBundle() }

// CommitBundle buys what was bundled. A refusal by the cloud shows as failed instances.
func (p *Purchases) CommitBundle() { p.manager.buyer.Commit(p.manager.ctx) }

// DropBundle cancels what was bundled.
func (p *Purchases) DropBundle() { p.manager.buyer.Drop() }
