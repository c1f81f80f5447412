package podlist

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"gpu-spot-autoscaler/cloudprovider/processors/internal/testutil"
)

func TestGangDeclarations(t *testing.T) {
	tests := map[string]struct {
		options []testutil.PodOption
		gang    string
		size    int
		err     string
	}{
		"a pod without a declaration is in no gang": {},
		"ACK's labels declare a gang": {
			options: []testutil.PodOption{testutil.InGang("train", 8)}, gang: "ml/train", size: 8,
		},
		"Koordinator's annotations declare a gang": {
			options: []testutil.PodOption{testutil.Annotated("gang.scheduling.koordinator.sh/name", "k"), testutil.Annotated("gang.scheduling.koordinator.sh/min-available", "2")},
			gang:    "ml/k", size: 2,
		},
		"our annotations declare a gang": {
			options: []testutil.PodOption{testutil.Annotated("gpu-spot.autoscaling/gang-name", "g"), testutil.Annotated("gpu-spot.autoscaling/gang-size", "4")},
			gang:    "ml/g", size: 4,
		},
		"our labels declare a gang and win": {
			options: []testutil.PodOption{testutil.Labelled("gpu-spot.autoscaling/gang-name", "g"), testutil.Labelled("gpu-spot.autoscaling/gang-size", "4"), testutil.InGang("other", 8)},
			gang:    "ml/g", size: 4,
		},
		"a gang without a size is malformed": {
			options: []testutil.PodOption{testutil.Labelled("gpu-spot.autoscaling/gang-name", "g")},
			err:     `gang "g" is declared without its size in gpu-spot.autoscaling/gang-size`,
		},
		"a size that is no number is malformed": {
			options: []testutil.PodOption{testutil.Labelled("gpu-spot.autoscaling/gang-name", "g"), testutil.Labelled("gpu-spot.autoscaling/gang-size", "many")},
			err:     `gang "g": gpu-spot.autoscaling/gang-size="many" is not a number of pods`,
		},
		"a size of zero is malformed": {
			options: []testutil.PodOption{testutil.Labelled("gpu-spot.autoscaling/gang-name", "g"), testutil.Labelled("gpu-spot.autoscaling/gang-size", "0")},
			err:     `gang "g": gpu-spot.autoscaling/gang-size="0" is not a number of pods`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			gang, size, err := gangOf(testutil.NewPod("p", test.options...))
			assert.Equal(t, test.gang, gang)
			assert.Equal(t, test.size, size)
			if test.err == "" {
				assert.NoError(t, err)
			} else {
				assert.EqualError(t, err, test.err)
				assert.IsType(t, &MalformedGangError{}, err)
			}
		})
	}
}

func TestMissing(t *testing.T) {
	tests := map[string]struct {
		count gangCount
		want  int
	}{
		"a new gang misses all":                        {gangCount{size: 8, pending: 8, unplaced: 8}, 8},
		"what fits existing nodes is not missing":      {gangCount{size: 8, pending: 8, unplaced: 5}, 5},
		"a lost member of a running gang is missing":   {gangCount{size: 8, running: 7, pending: 1, unplaced: 1}, 1},
		"an elastic gang misses only its minimum":      {gangCount{size: 4, pending: 8, unplaced: 8}, 4},
		"a gang at its minimum misses nothing":         {gangCount{size: 4, running: 4, pending: 4, unplaced: 4}, 0},
		"a gang that fits existing nodes misses none":  {gangCount{size: 4, pending: 4}, 0},
		"never more are missing than are there to buy": {gangCount{size: 9, pending: 2, unplaced: 2}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { assert.Equal(t, test.want, test.count.missing()) })
	}
}
