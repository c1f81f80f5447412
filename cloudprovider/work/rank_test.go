package work

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"k8s.io/utils/clock"
)

func TestItemsAreTakenByRankAndNotAsTheyCame(t *testing.T) {
	soon := time.Unix(1_800_000_000, 0)
	ranks := map[string]Rank{
		"last":   {Later: true, Deadline: soon, Name: "a"},
		"fourth": {Deadline: soon.Add(time.Minute), Name: "b"},
		"third":  {Deadline: soon.Add(time.Minute), Name: "a"},
		"second": {Deadline: soon, Name: "c"},
		"first":  {Deadline: soon, Name: "b"},
	}
	queue := NewRankedQueue("test", clock.RealClock{}, time.Second, func(item string) Rank { return ranks[item] })
	defer queue.ShutDown()
	for _, item := range []string{"last", "fourth", "third", "second", "first", "third"} {
		queue.Add(item)
	}
	var taken []string
	for range len(ranks) {
		item, _ := queue.Get()
		queue.Done(item)
		taken = append(taken, item)
	}
	assert.Equal(t, []string{"first", "second", "third", "fourth", "last"}, taken)
	assert.Zero(t, queue.Len())
}

func TestAnItemThatIsAddedAgainIsTakenByItsRankOfThen(t *testing.T) {
	soon := time.Unix(1_800_000_000, 0)
	ranks := map[string]Rank{}
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		ranks[name] = Rank{Deadline: soon.Add(time.Duration(i) * time.Minute), Name: name}
	}
	queue := NewRankedQueue("test", clock.RealClock{}, time.Second, func(item string) Rank { return ranks[item] })
	defer queue.ShutDown()
	for _, item := range []string{"c", "a", "e", "b", "d"} {
		queue.Add(item)
	}
	ranks["d"] = Rank{Deadline: soon.Add(-time.Minute), Name: "d"}
	ranks["a"] = Rank{Later: true, Deadline: soon, Name: "a"}
	queue.Add("d")
	queue.Add("a")
	var taken []string
	for range len(ranks) {
		item, _ := queue.Get()
		queue.Done(item)
		taken = append(taken, item)
	}
	assert.Equal(t, []string{"d", "b", "c", "e", "a"}, taken)
}
