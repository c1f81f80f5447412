// Package gangplan plans which offerings are bought for a gang that no single offering has room for, such as a launcher without GPUs
// and its workers, or sixteen nodes over two pools of ten.
//
// It is no hook of core, which knows only scale-ups of one node group. The orchestrator in package scaleup asks for a plan where core
// has no option for a gang, and has core buy each part of it.
package gangplan
