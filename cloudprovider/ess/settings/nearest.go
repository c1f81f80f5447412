package settings

import (
	"fmt"
	"maps"
	"slices"
)

// maxDistance is how many letters of a key may be wrong for the key that is meant to be named.
const maxDistance = 4

// noSuchSetting is the error of an unknown key under api.Prefix. It names the known key that is nearest.
func noSuchSetting(key string) error {
	nearest, least := "", maxDistance+1
	for _, known := range slices.Sorted(maps.Keys(ownTags)) {
		if d := distance(key, known); d < least {
			nearest, least = known, d
		}
	}
	if nearest == "" {
		return fmt.Errorf("there is no such setting")
	}
	return fmt.Errorf("there is no such setting; did you mean %s?", nearest)
}

// distance is how many letters have to be put in, left out or replaced to make one text of the other (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
