package alicloud

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
)

// Names of the files of a folder with credentials, as of the environment variables and of the keys of the Secret.
const (
	fileAccessKeyID     = "ALIBABA_CLOUD_ACCESS_KEY_ID"
	fileAccessKeySecret = "ALIBABA_CLOUD_ACCESS_KEY_SECRET"
	fileSecurityToken   = "ALIBABA_CLOUD_SECURITY_TOKEN"
)

// folderCredentials reads an access key, and a security token where there is one, from the files of a folder: a Secret that is
// mounted as a volume. The kubelet brings a change of the Secret into the files, so that it is mended without a restart.
type folderCredentials struct{ dir string }

func (f folderCredentials) GetProviderName() string { return "folder" }

// GetCredentials reads the files. The error names the one that is missing or empty, and holds nothing of their content.
func (f folderCredentials) GetCredentials() (*credentials.Credentials, error) {
	id, err := f.read(fileAccessKeyID)
	if err != nil {
		return nil, err
	}
	secret, err := f.read(fileAccessKeySecret)
	if err != nil {
		return nil, err
	}
	token, err := f.read(fileSecurityToken)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return &credentials.Credentials{AccessKeyId: id, AccessKeySecret: secret, SecurityToken: token, ProviderName: f.GetProviderName()}, nil
}

func (f folderCredentials) read(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(f.dir, name))
	if err != nil {
		return "", err
	}
	value := strings.TrimSpace(string(text))
	if value == "" && name != fileSecurityToken {
		return "", fmt.Errorf("%s is empty", filepath.Join(f.dir, name))
	}
	return value, nil
}
