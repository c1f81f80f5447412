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

// Directory reads an access key, and a security token if there is one, from the files of a directory, such as a Secret
// that is mounted as a volume. The kubelet updates those files when the Secret changes, so no restart is needed.
type Directory string

// GetProviderName implements the SDK's CredentialsProvider.
func (d Directory) GetProviderName() string { return "directory" }

// GetCredentials reads the files. Its error names the file that is missing or empty, and has nothing of their content.
func (d Directory) GetCredentials() (*sdkcredentials.Credentials, error) {
	id, err := d.read(fileAccessKeyID)
	if err != nil {
		return nil, err
	}
	secret, err := d.read(fileAccessKeySecret)
	if err != nil {
		return nil, err
	}
	token, err := d.read(fileSecurityToken)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &sdkcredentials.Credentials{AccessKeyId: id, AccessKeySecret: secret, SecurityToken: token, ProviderName: d.GetProviderName()}, nil
}

func (d Directory) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(string(d), name))
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" && name != fileSecurityToken {
		return "", fmt.Errorf("%s is empty", filepath.Join(string(d), name))
	}
	return value, nil
}
