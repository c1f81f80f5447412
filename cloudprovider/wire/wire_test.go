package wire_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/cloudprovider/wire"
)

// The autoscaler and the node-agent may be of different versions, so neither may ever change.
func TestCallersAndDigestsAreWhatOtherVersionsWrite(t *testing.T) {
	for address, want := range map[string]string{
		"10.1.0.7":        "10.1.0.7",
		"::ffff:10.1.0.7": "10.1.0.7",
		"fd00:0:0::5":     "fd00::5",
		"FD00::A":         "fd00::a",
		"fe80::1%eth0":    "fe80::1",
	} {
		assert.Equal(t, want, wire.Caller(netip.MustParseAddr(address)))
	}
	assert.Equal(t, "ba7816bf8f01cfea414140de5dae2223", wire.Digest("abc"), "the first example of FIPS 180-2, appendix B.1")
}
