package paging

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
)

var call = Call{Service: alicloud.ServiceECS, Action: "DescribeThings"}

func assertIncomplete(t *testing.T, got []string, err error) {
	t.Helper()
	assert.Empty(t, got, "half a listing is worse than none")
	assert.Equal(t, alicloud.Unavailable, alicloud.ClassOf(err))
	assert.ErrorContains(t, err, "ecs DescribeThings: Incomplete: the listing is incomplete")
}

func TestTokensThatDoNotEndAreAnError(t *testing.T) {
	for name, next := range map[string]func(token string) string{
		"the token repeats":       func(string) string { return "again" },
		"there is always another": func(token string) string { return token + "." },
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Tokens(t.Context(), call, func(_ context.Context, token string) ([]string, string, error) {
				return []string{token}, next(token), nil
			})
			assertIncomplete(t, got, err)
		})
	}
}

func TestTokens(t *testing.T) {
	got, err := Tokens(t.Context(), call, func(_ context.Context, token string) ([]string, string, error) {
		return []string{"after " + token}, map[string]string{"": "1", "1": "2"}[token], nil
	})
	require.NoError(t, err)
	assert.Equal(t, []string{"after ", "after 1", "after 2"}, got)
}

// numbered reads a listing of 5 items whose service says that its pages hold said items, but they hold fewer in the first readings.
func numbered(t *testing.T, said int, held func(reading int) int) ([]string, error) {
	readings := 0
	return Numbered(t.Context(), call, 1, func(item string) string { return item }, func(_ context.Context, number int) (Page[string], error) {
		if number == 1 {
			readings++ // the first page is fetched alone
		}
		const total = 5
		page := Page[string]{Size: said, Total: total}
		for i := range held(readings) {
			if item := (number-1)*said + i; item < total {
				page.Items = append(page.Items, strconv.Itoa(item))
			}
		}
		return page, nil
	})
}

func TestAnItemMissingFromThePagesIsAnError(t *testing.T) {
	got, err := numbered(t, 3, func(int) int { return 2 })
	assertIncomplete(t, got, err)
	assert.ErrorContains(t, err, "the pages have 4 items of 5")
}

func TestAnItemMissingFromThePagesIsLookedForAgain(t *testing.T) {
	got, err := numbered(t, 3, func(reading int) int { return min(reading+1, 3) })
	require.NoError(t, err)
	assert.Equal(t, []string{"0", "1", "2", "3", "4"}, got)
}

func TestAListingThatShrinksWithEveryRequestIsNotAnError(t *testing.T) {
	const size = 10
	total := 10 * size
	var mu sync.Mutex
	_, err := Numbered(t.Context(), call, size, func(item string) string { return item }, func(_ context.Context, number int) (Page[string], error) {
		mu.Lock()
		defer mu.Unlock()
		page := Page[string]{Size: size, Total: total}
		for item := (number - 1) * size; item < min(number*size, total); item++ {
			page.Items = append(page.Items, fmt.Sprint(item))
		}
		total--
		return page, nil
	})
	assert.NoError(t, err)
}
