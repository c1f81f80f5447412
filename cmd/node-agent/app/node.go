package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const (
	// nodeTimeout bounds one request, so that an API server that does not answer costs no more than a retry.
	nodeTimeout = 5 * time.Second
	// maxNodeBody is above the size of any Node: etcd stores no larger objects.
	maxNodeBody = 2 << 20
)

// restNode reads and writes the Node without the typed clientset, which would take more memory than the rest of the process.
type restNode struct {
	client *http.Client
	url    string
}

func newRESTNode(config *rest.Config, name string) (*restNode, error) {
	config = rest.CopyConfig(config)
	config.Timeout = nodeTimeout
	// A connection of HTTP/1.1 is closed when a request on it times out. One of HTTP/2 would be used again.
	config.NextProtos = []string{"http/1.1"}
	config.UserAgent = "gpu-spot-node-agent"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	return &restNode{client, base.JoinPath("api/v1/nodes", url.PathEscape(name)).String()}, nil
}

func (n *restNode) get(ctx context.Context, what part) (*node, error) {
	body, err := n.do(ctx, http.MethodGet, what, nil)
	if err != nil {
		return nil, err
	}
	var found node
	if err := json.Unmarshal(body, &found); err != nil {
		return nil, fmt.Errorf("read the Node: %w", err)
	}
	found.ManagedFields = nil
	return &found, nil
}

func (n *restNode) annotate(ctx context.Context, annotations map[string]*string, version string) error {
	metadata := map[string]any{"annotations": annotations}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = n.do(ctx, http.MethodPatch, metadataOnly, patch)
	return err
}

// do returns the body of a reply with status 200. For other replies it returns an *apierrors.StatusError.
func (n *restNode) do(ctx context.Context, method string, what part, patch []byte) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, n.url, bytes.NewReader(patch))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", string(what))
	if patch != nil {
		request.Header.Set("Content-Type", string(types.MergePatchType))
	}
	response, err := n.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxNodeBody))
	if err != nil {
		return nil, fmt.Errorf("%s of the Node: %w", method, err)
	}
	if response.StatusCode == http.StatusOK {
		return body, nil
	}
	failure := &apierrors.StatusError{}
	if json.Unmarshal(body, &failure.ErrStatus) != nil || failure.ErrStatus.Code == 0 { // not from the API server, but from a proxy
		failure.ErrStatus = metav1.Status{
			Status: metav1.StatusFailure, Code: int32(response.StatusCode),
			Message: fmt.Sprintf("status %d: %.200s", response.StatusCode, body),
		}
	}
	return nil, failure
}
