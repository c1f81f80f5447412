package credentials

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
)

// Names of the files of a Directory. They are those of the environment variables, and of the keys of the Secret.
const (
	fileAccessKeyID     = "ALIBABA_CLOUD_ACCESS_KEY_ID"
	fileAccessKeySecret = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"
	fileSecurityToken   = "ALIBABA_CLOUD_SECURITY_TOKEN"
)

// dataLink is the link through which the kubelet shows the files of a volume. Each update makes a new directory, points the link to
// it, and removes the old directory.
// Source: AtomicWriter in kubernetes/kubernetes, pkg/volume/util/atomic_writer.go.
const dataLink = "..data"

// Directory reads an access key, and a security token if there is one, from the files of a directory, such as a Secret
// that is mounted as a volume. The kubelet updates those files when the Secret changes, so no restart is needed.
type Directory string

// GetProviderName implements the SDK's CredentialsProvider.
func (d Directory) GetProviderName() string { return "directory" }

// GetCredentials reads the files, all of them from the same version of the Secret. Its error names the file that is missing or
// empty, and has nothing of their content.
func (d Directory) GetCredentials() (*sdkcredentials.Credentials, error) {
	version, err := d.version()
	if err != nil {
		return nil, err
	}
	creds, err := d.read(version)
	if now, changed := d.version(); changed == nil && now != version {
		// The old directory may have been removed before all of its files were read.
		return d.read(now)
	}
	return creds, err
}

// version returns the directory with the current files.
func (d Directory) version() (string, error) {
	directory, err := filepath.EvalSymlinks(filepath.Join(string(d), dataLink))
	if errors.Is(err, fs.ErrNotExist) {
		return string(d), nil // not a volume
	}
	return directory, err
}

func (d Directory) read(directory string) (*sdkcredentials.Credentials, error) {
	id, err := d.readValue(directory, fileAccessKeyID)
	if err != nil {
		return nil, err
	}
	secret, err := d.readValue(directory, fileAccessKeySecret)
	if err != nil {
		return nil, err
	}
	token, err := d.readValue(directory, fileSecurityToken)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &sdkcredentials.Credentials{AccessKeyId: id, AccessKeySecret: secret, SecurityToken: token, ProviderName: d.GetProviderName()}, nil
}

// readValue reads a file of the directory. Its errors have the path below the directory, which does not change with each version.
func (d Directory) readValue(directory, name string) (string, error) {
	shown := filepath.Join(string(d), name)
	text, err := os.ReadFile(filepath.Join(directory, name))
	if failed := (*fs.PathError)(nil); errors.As(err, &failed) {
		return "", &fs.PathError{Op: failed.Op, Path: shown, Err: failed.Err}
	}
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" && name != fileSecurityToken {
		return "", fmt.Errorf("%s is empty", shown)
	}
	return value, nil
}
