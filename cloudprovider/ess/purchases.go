package ess

// Purchases has purchases made together: those of a loop, and those of several offerings for one gang. Only the goroutine of core's loop
// may use it, or one in its place; others may refresh and buy meanwhile.
//
// It takes what is to be bought as a function, because core, which does the buying by NodeGroup.IncreaseSize, has nothing to pass a gang or a
// loop by.
type Purchases struct{ manager *manager }

// Gather has the purchases that buy makes wait until it returns, or calls send. Those of one offering become one. A refusal by the cloud shows
// as failed instances.
func (p *Purchases) Gather(buy func(send func())) { p.manager.buyer.Gather(p.manager.ctx, buy) }

// Bundle has the calls of AtomicIncreaseSize that buy makes wait until it returns. If it returns true, all of that is bought at once, and a
// refusal by the cloud shows as failed instances; else none of it is. If any of it comes short, all of it is given back, but for instances on
// which pods run by then.
func (p *Purchases) Bundle(buy func() bool) { p.manager.buyer.Bundle(p.manager.ctx, buy) }
