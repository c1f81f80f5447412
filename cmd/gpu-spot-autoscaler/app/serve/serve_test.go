package serve

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
	testprovider "k8s.io/autoscaler/cluster-autoscaler/cloudprovider/test"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/expander"
	"k8s.io/autoscaler/cluster-autoscaler/expander/grpcplugin"
	expanderprotos "k8s.io/autoscaler/cluster-autoscaler/expander/grpcplugin/protos"

	"gpu-spot-autoscaler/test/pki"
)

// soon is for what a busy machine may take.
const soon = 30 * time.Second

// provider has one node group.
type provider struct {
	protos.UnimplementedCloudProviderServer
}

func (provider) NodeGroups(context.Context, *protos.NodeGroupsRequest) (*protos.NodeGroupsResponse, error) {
	return &protos.NodeGroupsResponse{NodeGroups: []*protos.NodeGroup{{Id: "a", MaxSize: 1}}}, nil
}

// chooser chooses the second option.
type chooser struct {
	expanderprotos.UnimplementedExpanderServer
}

func (*chooser) BestOptions(_ context.Context, request *expanderprotos.BestOptionsRequest) (*expanderprotos.BestOptionsResponse, error) {
	return &expanderprotos.BestOptionsResponse{Options: request.GetOptions()[1:2]}, nil
}

// served is a provider and an expander behind the certificates in a directory.
type served struct {
	*testing.T
	Options
	dir string
}

func serveBoth(t *testing.T, servers, clients *pki.Authority) *served {
	t.Helper()
	s := &served{T: t, dir: t.TempDir()}
	s.CertFile, s.KeyFile = servers.Write(s.dir, "serve")
	s.ClientCAFile = clients.WriteCA(s.dir)
	s.Address, s.ExpanderAddress = freeAddress(t), freeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Serve(ctx, s.Options, provider{}, &chooser{}) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, <-ended) })
	for _, address := range []string{s.Address, s.ExpanderAddress} {
		require.Eventually(t, func() bool {
			conn, err := net.Dial("tcp", address)
			return err == nil && conn.Close() == nil
		}, soon, 10*time.Millisecond)
	}
	return s
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// client returns what Cluster Autoscaler makes of its cloud-config. Certificates are those of the authorities.
func (s *served) client(servers, clients *pki.Authority) cloudprovider.CloudProvider {
	s.Helper()
	dir := s.TempDir()
	cert, key := clients.Write(dir, "cluster-autoscaler")
	file := filepath.Join(dir, "cloud-config")
	require.NoError(s, os.WriteFile(file, []byte(
		"address: "+s.Address+"\ncert: "+cert+"\nkey: "+key+"\ncacert: "+servers.WriteCA(dir)+"\ngrpc_timeout: 30s\n"), 0o600))
	return externalgrpc.BuildExternalGrpc(config.AutoscalingOptions{CloudConfig: file}, cloudprovider.NodeGroupDiscoveryOptions{}, nil)
}

func TestOnlyClientsWithACertificateAreServed(t *testing.T) {
	servers, clients, strangers := pki.New(t, "servers"), pki.New(t, "clients"), pki.New(t, "strangers")
	s := serveBoth(t, servers, clients)
	assert.Len(t, s.client(servers, clients).NodeGroups(), 1)
	assert.Empty(t, s.client(servers, strangers).NodeGroups(), "signed by somebody else")

	// Without any certificate the handshake fails, which TLS 1.3 tells at the first read.
	conn, err := tls.Dial("tcp", s.Address, &tls.Config{RootCAs: pool(t, servers), NextProtos: []string{"h2"}})
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	assert.ErrorContains(t, err, "certificate required")
}

func pool(t *testing.T, of *pki.Authority) *x509.CertPool {
	t.Helper()
	pem, err := os.ReadFile(of.WriteCA(t.TempDir()))
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(pem))
	return pool
}

func TestCertificatesAreReadAgainWhenTheyChange(t *testing.T) {
	servers, clients := pki.New(t, "servers"), pki.New(t, "clients")
	s := serveBoth(t, servers, clients)
	newServers, newClients := pki.New(t, "new servers"), pki.New(t, "new clients")
	newServers.Write(s.dir, "serve") // over the old files
	newClients.WriteCA(s.dir)
	assert.Eventually(t, func() bool { return len(s.client(newServers, newClients).NodeGroups()) == 1 }, 2*soon, time.Second)
	assert.Empty(t, s.client(newServers, clients).NodeGroups(), "the old authority does not count any more")
}

func TestTheExpanderAnswersClusterAutoscalerWhichShowsNoCertificate(t *testing.T) {
	servers, clients := pki.New(t, "servers"), pki.New(t, "clients")
	s := serveBoth(t, servers, clients)
	groups := testprovider.NewTestCloudProviderBuilder().Build()
	var options []expander.Option
	for _, id := range []string{"a", "b"} {
		groups.AddNodeGroup(id, 0, 1, 0)
		options = append(options, expander.Option{NodeGroup: groups.GetNodeGroup(id), NodeCount: 1, Pods: []*apiv1.Pod{{}}})
	}
	filter := grpcplugin.NewFilter(servers.WriteCA(t.TempDir()), s.ExpanderAddress)
	require.Len(t, s.client(servers, clients).NodeGroups(), 1)
	best := filter.BestOptions(options, nil)
	require.Len(t, best, 1)
	assert.Equal(t, "b", best[0].NodeGroup.Id())
}

func TestTheExpanderAnswersNobodyElse(t *testing.T) {
	servers, clients := pki.New(t, "servers"), pki.New(t, "clients")
	s := serveBoth(t, servers, clients)
	require.Len(t, s.client(servers, clients).NodeGroups(), 1)
	for from, answered := range map[string]bool{"127.0.0.1": true, "127.0.0.2": false} {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: soon}
		conn, err := tls.DialWithDialer(dialer, "tcp", s.ExpanderAddress, &tls.Config{RootCAs: pool(t, servers), NextProtos: []string{"h2"}})
		if assert.Equal(t, answered, err == nil, "%s: %v", from, err) && answered {
			assert.NoError(t, conn.Close())
		}
	}
}

func TestFlagsThatAreMissingAreNamed(t *testing.T) {
	assert.Len(t, (&Options{Address: ":1"}).Validate(), 3)
	assert.Empty(t, (&Options{Address: ":1", CertFile: "c", KeyFile: "k", ClientCAFile: "a"}).Validate())
}

func TestFilesThatAreNoCertificatesAreNamedBeforeAClusterIsLookedFor(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	authority := pki.New(t, "servers")
	cert, key := authority.Write(dir, "serve")
	_, foreign := authority.Write(other, "serve")
	ca := authority.WriteCA(dir)
	assert.NoError(t, (&Options{CertFile: cert, KeyFile: key, ClientCAFile: ca}).readFiles())
	for want, o := range map[string]Options{
		"--serve-tls-cert-file, --serve-tls-private-key-file: open none": {CertFile: "none", KeyFile: key, ClientCAFile: ca},
		"private key does not match":                                     {CertFile: cert, KeyFile: foreign, ClientCAFile: ca},
		"--serve-client-ca-file":                                         {CertFile: cert, KeyFile: key, ClientCAFile: key},
	} {
		assert.ErrorContains(t, o.readFiles(), want)
	}
}
