// Package kubelet plays the kubelets of a cluster, with kwok. stages.yaml says how Nodes and pods behave.
package kubelet

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/apis/internalversion"
	"sigs.k8s.io/kwok/pkg/apis/v1alpha1"
	"sigs.k8s.io/kwok/pkg/kwok/controllers"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/gotpl"
)

// stages is how a Node and a pod behave, in kwok's terms.
//
//go:embed stages.yaml
var stages []byte

const (
	kwokWorkers   = 64 // each waits for the API server most of its time, as the kubelets of a big cluster do side by side
	leaseWorkers  = 8
	podNetwork    = "10.128.0.1/9" // 8 million addresses, from this one on
	addressOfNode = "192.0.2.1"    // for a Node that comes without one; TEST-NET-1, which nothing answers
)

// Run plays the kubelets of all Nodes annotated kwok.x-k8s.io/node=fake.
func Run(ctx context.Context, args []string) error {
	flags := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	grace := flags.Duration("node-grace-period", 40*time.Second, "a Node's lease lasts this long and is renewed in every quarter of it")
	version := flags.String("kubelet-version", "", "what a Node says that it runs, where whoever made it did not say so")
	if err := flags.Parse(args); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = config.ContentType + ",application/json"
	config.Wrap(repeatUntilAnswered)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx = log.NewContext(ctx, log.NewLogger(os.Stderr, log.LevelWarn))

	if err := keepLeases(ctx, client, *grace); err != nil {
		return err
	}
	controller, err := newController(client, *version)
	if err != nil {
		return err
	}
	if err := controller.Start(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// newController is kwok itself. Its own leases are off: while it believes that it does not hold a Node's lease it drops the
// events of that Node's pods for good, and it believes so for a moment after every new Node.
func newController(client kubernetes.Interface, version string) (*controllers.Controller, error) {
	local, err := parseStages(stages)
	if err != nil {
		return nil, err
	}
	nodes := newSelection()
	return controllers.NewController(controllers.Config{
		Clock:                             clock.RealClock{},
		TypedClient:                       fakeNodesOnly{client, nodes},
		ManageNodesWithAnnotationSelector: nodeAnnotation + "=" + nodeFake,
		CIDR:                              podNetwork,
		NodeIP:                            addressOfNode,
		LocalStages:                       local,
		PodPlayStageParallelism:           kwokWorkers,
		NodePlayStageParallelism:          kwokWorkers,
		PodsOnNodeSyncParallelism:         kwokWorkers,
		FuncMap: gotpl.FuncMap{
			"Alive": nodes.alive, "After": after, "AfterAtMost": afterAtMost,
			"KubeletVersion": func() string { return version },
		},
	})
}

// after is the time that lies the duration (in Go's notation) ahead. Stages keep it in a status.
func after(duration string) (string, error) {
	d, err := time.ParseDuration(duration)
	if err != nil {
		return "", err
	}
	return time.Now().Add(d).UTC().Format(time.RFC3339Nano), nil
}

// afterAtMost is after, but never later than the limit, a time in RFC 3339.
func afterAtMost(duration, limit string) (string, error) {
	end, err := after(duration)
	if err != nil {
		return "", err
	}
	latest, err := time.Parse(time.RFC3339, limit)
	if err != nil {
		return "", err
	}
	if decided, _ := time.Parse(time.RFC3339Nano, end); decided.Before(latest) {
		return end, nil
	}
	return limit, nil
}

func parseStages(data []byte) (map[internalversion.StageResourceRef][]*internalversion.Stage, error) {
	local := map[internalversion.StageResourceRef][]*internalversion.Stage{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		var external v1alpha1.Stage
		err := decoder.Decode(&external)
		if errors.Is(err, io.EOF) {
			return local, nil
		}
		if err != nil {
			return nil, err
		}
		stage, err := internalversion.ConvertToInternalStage(&external)
		if err != nil {
			return nil, fmt.Errorf("stage %s: %w", external.Name, err)
		}
		local[stage.Spec.ResourceRef] = append(local[stage.Spec.ResourceRef], stage)
	}
}
