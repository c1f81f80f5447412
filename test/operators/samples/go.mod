// Module samples requires the modules that hold samples of operators whose own module, in the version that the tests run, has none: the
// first Trainer whose repository has TrainJobs in YAML. Nothing is built of it.
module gpu-spot-autoscaler/test/operators/samples

go 1.26

require github.com/kubeflow/trainer/v2 v2.3.0
