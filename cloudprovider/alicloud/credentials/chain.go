package credentials

import (
	"os"

	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
)

// Default returns the SDK's default chain of providers with two differences. The STS endpoint can be chosen; empty means
// Alibaba Cloud's of the region. And if RRSA is configured nothing comes after it: the SDK's chain goes on to the next
// provider after one failed exchange and stays with that one, which on ACK is the RAM role of the node.
func Default(region, stsEndpoint string) sdkcredentials.CredentialsProvider {
	if os.Getenv("ALIBABA_CLOUD_ACCESS_KEY_ID") == "" {
		if oidc, err := oidcProvider(region, stsEndpoint); err == nil {
			return oidc
		}
	}
	return &restartingChain{}
}

// oidcProvider fails if the environment lacks what RRSA needs.
func oidcProvider(region, stsEndpoint string) (sdkcredentials.CredentialsProvider, error) {
	builder := sdkcredentials.NewOIDCCredentialsProviderBuilder().
		WithRoleSessionName("gpu-spot-autoscaler").
		WithSTSEndpoint(stsEndpoint)
	if os.Getenv("ALIBABA_CLOUD_STS_REGION") == "" {
		builder = builder.WithStsRegion(region)
	}
	return builder.Build()
}

// restartingChain is the SDK's default chain, which starts again from its first provider after a failure. The SDK's own
// chain stays with the provider that failed.
type restartingChain struct {
	chain sdkcredentials.CredentialsProvider
}

func (r *restartingChain) GetCredentials() (*sdkcredentials.Credentials, error) {
	if r.chain == nil {
		r.chain = sdkcredentials.NewDefaultCredentialsProvider()
	}
	creds, err := r.chain.GetCredentials()
	if err != nil {
		r.chain = nil
	}
	return creds, err
}

func (r *restartingChain) GetProviderName() string { return "default" }
