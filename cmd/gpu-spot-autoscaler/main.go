package main

import (
	_ "github.com/aliyun/alibaba-cloud-sdk-go/sdk"
	_ "github.com/aliyun/alibaba-cloud-sdk-go/services/ecs"
	_ "github.com/aliyun/alibaba-cloud-sdk-go/services/ess"
	_ "github.com/aliyun/alibaba-cloud-sdk-go/services/sts"
	_ "github.com/aliyun/alibaba-cloud-sdk-go/services/vpc"
	_ "github.com/google/uuid"
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/spf13/cobra"
	_ "github.com/spf13/pflag"
	_ "github.com/stretchr/testify/assert"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/time/rate"
	_ "k8s.io/autoscaler/cluster-autoscaler/core"
	_ "k8s.io/autoscaler/cluster-autoscaler/provisioningrequest/orchestrator"
	_ "k8s.io/autoscaler/cluster-autoscaler/config/flags"
	_ "k8s.io/kubectl/pkg/drain"
	_ "k8s.io/utils/clock"
	_ "sigs.k8s.io/yaml"
)

func main() {}
