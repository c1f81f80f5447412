package options

import (
	"fmt"

	"github.com/spf13/pflag"

	"gpu-spot-autoscaler/cloudprovider/reclaim/push"
)

// NoticeOptions configure the port for pushed reclaim notices.
type NoticeOptions struct {
	// Address is the host:port to listen on, or "" for none.
	Address string
	// TokenFile contains the bearer token of the sender. CertFile and KeyFile are PEM files. All three are read again when they
	// change.
	TokenFile, CertFile, KeyFile string
	// TokenInURL allows for the token in the URL.
	TokenInURL bool
	// Signatures is check, require or ignore: how the signatures of EventBridge are treated.
	Signatures string
}

func (o *NoticeOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, "notice-address", "",
		"Host and port at which reclaim notices of EventBridge or CloudMonitor may be pushed, over HTTPS, to /v1/notices. Default: none.")
	fs.StringVar(&o.TokenFile, "notice-token-file", "",
		"File with the token that the sender of notices gives as \"Authorization: Bearer\". Required with --notice-address.")
	fs.BoolVar(&o.TokenInURL, "notice-token-in-url", false,
		"Take the token from the URL (?token=) too, which is all that can be set in CloudMonitor. URLs are written into logs on their way.")
	fs.StringVar(&o.Signatures, "notice-signature", string(push.SignaturesChecked),
		"How to treat EventBridge's signatures: check (refuse wrong ones; accept requests that cannot be checked by their token), require (refuse requests without a valid signature) or ignore.")
	fs.StringVar(&o.CertFile, "notice-tls-cert-file", "", "File with the certificate of --notice-address, PEM. Required with it.")
	fs.StringVar(&o.KeyFile, "notice-tls-private-key-file", "", "File with the key of --notice-tls-cert-file, PEM. Required with --notice-address.")
}

// validate returns an error for every flag that is missing or wrong.
func (o *NoticeOptions) validate() (problems []error) {
	if o.Address == "" {
		return nil
	}
	switch push.Signatures(o.Signatures) {
	case push.SignaturesChecked, push.SignaturesRequired, push.SignaturesIgnored:
	default:
		problems = append(problems, fmt.Errorf("--notice-signature=%s is neither check, require nor ignore", o.Signatures))
	}
	for _, required := range []struct{ name, value string }{
		{"notice-token-file", o.TokenFile}, {"notice-tls-cert-file", o.CertFile}, {"notice-tls-private-key-file", o.KeyFile},
	} {
		if required.value == "" {
			problems = append(problems, fmt.Errorf("--notice-address needs --%s", required.name))
		}
	}
	return problems
}
