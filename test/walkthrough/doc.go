// Package walkthrough holds the documentation to what it describes. One test takes every shell block of docs/ack.md and runs it as it is
// written, from the tags of a scaling group to the end of helm uninstall, between a real control plane and the simulated cloud, and in the
// same world those of the pages for operators. Another checks the commands of all other pages without running them: manual_test.go says which
// holds for which page. A third compares each document with its translation.
//
// What the blocks call is the real thing where that is to be had: bash, kubectl, helm, and the binary of the autoscaler for itself and in the
// pods that the chart makes. Where it is not, a stand-in of that name answers: see standins_test.go.
package walkthrough
