// Package finish decides what a training runs on that has to be over in time: a spot offering, on-demand, or nothing until an offering comes
// back. It takes what costs least until the training is over, as far as the past tells.
//
// The costs are those of the next step, computed for the market as it is, and of all that may follow, by two kinds of tables
// whose mean is taken. A sceneTable has the job lose its instance in one of the situations in which instances were lost before, each as
// probable as the other. A chainTable has the market move between a few classes as it did before, so that bad times last.
// They are computed by all of the past and again by its last ten days, backwards over the work that is left and the slack,
// which is by how much longer the time is that is left.
//
// A job with much slack buys nothing in an outage, unless its time is worth more than spot saves. It may also wait until an offering that has just come back has lasted, where that costs less.
//
// The policy follows Wu et al., "Can't Be Late: Optimizing Spot Instance Savings under Deadlines" (NSDI 2024), in never letting the time
// run out in which on-demand finishes for sure.
package finish
