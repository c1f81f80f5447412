package options

import (
	"errors"

	"github.com/spf13/pflag"
)

// SecureOptions configure the port for callers whom Kubernetes knows and allows it.
type SecureOptions struct {
	// Address is the host:port to listen on, or "" for none.
	Address string
	// CertFile and KeyFile are PEM files, which are read again when they change. Without them a certificate is made at start.
	CertFile, KeyFile string
}

func (o *SecureOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.Address, "secure-address", "",
		"Host and port at which /metrics and the status are served over HTTPS, to whom Kubernetes allows it (TokenReview and SubjectAccessReview). --address then serves no metrics. Default: none.")
	fs.StringVar(&o.CertFile, "secure-tls-cert-file", "", "File with the certificate of --secure-address, PEM. Default: one that is made at start, which nobody can verify.")
	fs.StringVar(&o.KeyFile, "secure-tls-private-key-file", "", "File with the key of --secure-tls-cert-file, PEM.")
}

func (o *SecureOptions) validate() (problems []error) {
	if (o.CertFile == "") != (o.KeyFile == "") {
		problems = append(problems, errors.New("--secure-tls-cert-file and --secure-tls-private-key-file go together"))
	}
	if o.Address == "" && o.CertFile != "" {
		problems = append(problems, errors.New("--secure-tls-cert-file needs --secure-address"))
	}
	return problems
}
