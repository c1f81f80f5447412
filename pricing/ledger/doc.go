// Package ledger is the cost ledger: what instances cost from their creation to their release, beside what on-demand ones would have cost
// in their place; how many GPU-hours were bought, used and spent under reclaim; by pool and offering, and by namespace and job.
//
// An instance costs the price of its offering from its creation to its release, by the second: a spot instance the market price of each time,
// but in its protected hour the market price at its purchase.
// Source: https://www.alibabacloud.com/help/en/ecs/spot-instance, "Billing rules".
//
// A pod bears the part of it that corresponds to the GPUs that it requests. What no pod bears is idle.
//
// The totals are kept in a [state.Store]. What is stored says until when everything was accounted for, so that a process that starts again,
// or takes over, goes on from there: nothing counts twice. While no process accounts, an instance that lives through that time counts at
// the prices of that time, as far as the history of a day reaches, one that is created in it from its creation, and one that is released in it
// not at all in that time.
package ledger
