package credentials

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	sdkcredentials "github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// secretVolume is a directory as the kubelet makes it of a Secret.
type secretVolume struct {
	t    *testing.T
	root string
}

func newSecretVolume(t *testing.T) *secretVolume {
	v := &secretVolume{t: t, root: t.TempDir()}
	for _, name := range []string{fileAccessKeyID, fileAccessKeySecret, fileSecurityToken} {
		require.NoError(t, os.Symlink(filepath.Join(dataLink, name), filepath.Join(v.root, name)))
	}
	return v
}

// write makes the directory of a version and returns its path.
func (v *secretVolume) write(version string, names ...string) string {
	directory := filepath.Join(v.root, "..v"+version)
	require.NoError(v.t, os.Mkdir(directory, 0o700))
	for _, name := range names {
		require.NoError(v.t, os.WriteFile(filepath.Join(directory, name), []byte(version), 0o600))
	}
	return directory
}

// show makes the directory the current one.
func (v *secretVolume) show(directory string) {
	next := filepath.Join(v.root, "..data_tmp")
	require.NoError(v.t, os.Symlink(filepath.Base(directory), next))
	require.NoError(v.t, os.Rename(next, filepath.Join(v.root, dataLink)))
}

func TestASecretThatChangesWhileItIsReadIsNotMixed(t *testing.T) {
	for name, removed := range map[string]bool{"the old one stays": false, "the old one is removed": true} {
		t.Run(name, func(t *testing.T) {
			volume := newSecretVolume(t)
			before := volume.write("1", fileAccessKeySecret, fileSecurityToken)
			pipe := filepath.Join(before, fileAccessKeyID) // the reader waits at it
			require.NoError(t, syscall.Mkfifo(pipe, 0o600))
			volume.show(before)
			go func() {
				reader, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns once somebody reads
				assert.NoError(t, err)
				volume.show(volume.write("2", fileAccessKeyID, fileAccessKeySecret))
				if removed {
					assert.NoError(t, os.RemoveAll(before))
				}
				_, err = reader.WriteString("1")
				assert.NoError(t, err)
				assert.NoError(t, reader.Close())
			}()
			got, err := Directory(volume.root).GetCredentials()
			require.NoError(t, err)
			assert.Equal(t, &sdkcredentials.Credentials{AccessKeyId: "2", AccessKeySecret: "2", ProviderName: "directory"}, got)
		})
	}
}

func TestAMissingFileOfASecretHasTheNameThatTheOperatorKnows(t *testing.T) {
	volume := newSecretVolume(t)
	volume.show(volume.write("1", fileAccessKeyID))
	_, err := Directory(volume.root).GetCredentials()
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, filepath.Join(volume.root, fileAccessKeySecret))
}

func TestFilesOfAPlainDirectory(t *testing.T) {
	plain := t.TempDir()
	_, err := Directory(plain).GetCredentials()
	assert.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, filepath.Join(plain, fileAccessKeyID))
	for _, name := range []string{fileAccessKeyID, fileAccessKeySecret, fileSecurityToken} {
		require.NoError(t, os.WriteFile(filepath.Join(plain, name), []byte(name+"\n"), 0o600))
	}
	got, err := Directory(plain).GetCredentials()
	require.NoError(t, err)
	assert.Equal(t, &sdkcredentials.Credentials{AccessKeyId: fileAccessKeyID, AccessKeySecret: fileAccessKeySecret,
		SecurityToken: fileSecurityToken, ProviderName: "directory"}, got)
}
