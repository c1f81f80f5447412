package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"

	"gpu-spot-autoscaler/cloudprovider/api"
	"gpu-spot-autoscaler/test/alisim"
)

// buying is a question that does something with up to two instances.
func buying(try func(ctx context.Context, e *trial) (facts, error)) question {
	return question{name: "buying", spends: spends{instances: 2}, try: try}
}

func simulated(t *testing.T) *simulator {
	t.Helper()
	s, err := simulate(t.Context(), newWorld())
	require.NoError(t, err)
	t.Cleanup(s.stop)
	return s
}

// left returns what runs, or is listed, of a group once nothing more is under way in it.
func (s *simulator) left(t *testing.T, group string) []string {
	t.Helper()
	_, err := s.account.until(t.Context(), activityTakes, func() (bool, error) {
		g, _ := s.Group(group)
		return !slices.ContainsFunc(g.Activities, func(a alisim.ActivityView) bool { return a.Ended.IsZero() }), nil
	})
	require.NoError(t, err)
	var ids []string
	for _, i := range s.Instances() {
		if i.ScalingGroupID == group {
			ids = append(ids, i.ID)
		}
	}
	return ids
}

func TestWhatWasBoughtIsGivenBackHoweverTheQuestionEnds(t *testing.T) {
	for name, try := range map[string]func(ctx context.Context, e *trial) (facts, error){
		"it returns": func(ctx context.Context, e *trial) (facts, error) {
			_, err := e.boughtSome(ctx, 2)
			return facts{"bought": "two"}, err
		},
		"it panics while the purchase is under way": func(ctx context.Context, e *trial) (facts, error) {
			if _, _, err := e.buy(ctx, 2, nil); err != nil {
				return nil, err
			}
			panic("a bug")
		},
		"it returns as soon as the purchase has ended": func(ctx context.Context, e *trial) (facts, error) {
			id, _, err := e.buy(ctx, 2, nil)
			require.NoError(t, err)
			_, err = e.end(ctx, id)
			return nil, err
		},
		"it panics while instances serve": func(ctx context.Context, e *trial) (facts, error) {
			if _, err := e.boughtSome(ctx, 2); err != nil {
				return nil, err
			}
			panic("a bug")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := simulated(t)
			_, err := s.account.try(t.Context(), buying(try))
			if strings.Contains(name, "panic") {
				assert.ErrorContains(t, err, "a bug")
			} else {
				assert.NoError(t, err)
			}
			assert.Empty(t, s.left(t, simGroup))
			assert.NotEmpty(t, s.left(t, simOthers), "others keep theirs")
		})
	}
}

func TestWhatWasBoughtIsGivenBackWhenInterrupted(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	ctx, interrupt := context.WithCancel(t.Context())
	asked := []question{buying(func(ctx context.Context, e *trial) (facts, error) {
		id, _, err := e.buy(ctx, 2, nil)
		require.NoError(t, err)
		interrupt()
		_, err = e.end(ctx, id)
		return nil, err
	}), buying(func(context.Context, *trial) (facts, error) {
		t.Error("nothing more is asked")
		return nil, nil
	})}
	answers := askAll(ctx, s.account, asked, true)
	assert.Contains(t, answers[0].Error, context.Canceled.Error())
	assert.Contains(t, answers[1].Error, "not asked")
	assert.Empty(t, s.left(t, simGroup))
}

func TestAPurchaseWhoseReplyIsLostIsGivenBack(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	_, err := s.account.try(t.Context(), buying(func(ctx context.Context, e *trial) (facts, error) {
		require.NoError(t, s.Fault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: alisim.FaultLostReply}))
		_, _, err := e.buy(ctx, 1, nil)
		s.ClearFaults()
		return nil, err
	}))
	require.Error(t, err)
	assert.Empty(t, s.left(t, simGroup))
}

// A first attempt whose reply is lost buys, and the client's second is refused since an activity is in progress.
func TestARefusalAfterALostReplyIsNoRefusal(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	_, err := s.account.try(t.Context(), buying(func(ctx context.Context, e *trial) (facts, error) {
		require.NoError(t, s.Fault(alisim.Fault{Action: "ScaleWithAdjustment", Kind: alisim.FaultLostReply, Times: 1}))
		_, _, err := e.buy(ctx, 1, nil)
		_, refused := refusal(err)
		assert.Error(t, err)
		assert.False(t, refused)
		assert.True(t, e.uncertain)
		assert.Equal(t, 1, e.out)
		return nil, nil
	}))
	require.NoError(t, err)
	assert.Empty(t, s.left(t, simGroup))
}

func TestProtectedAndStandbyInstancesAreGivenBackToo(t *testing.T) {
	for _, action := range []string{"SetInstancesProtection", "EnterStandby"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			s := simulated(t)
			_, err := s.account.try(t.Context(), buying(func(ctx context.Context, e *trial) (facts, error) {
				id, err := e.bought(ctx)
				require.NoError(t, err)
				p := parameters{"ScalingGroupId": e.group, "ProtectedFromScaleIn": "true"}.list("InstanceId", id)
				_, err = e.ess(ctx, action, p)
				return nil, err
			}))
			require.NoError(t, err)
			assert.Empty(t, s.left(t, simGroup))
		})
	}
}

func TestInstancesThatCannotBeGivenBackAreNamedAndNothingMoreIsBought(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	var id string
	asked := []question{buying(func(ctx context.Context, e *trial) (facts, error) {
		var err error
		id, err = e.bought(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Fault(alisim.Fault{Action: "RemoveInstances", Kind: alisim.FaultError, Code: "Forbidden.Unauthorized", Status: 403}))
		return nil, nil
	}), buying(func(context.Context, *trial) (facts, error) {
		t.Error("nothing more is bought")
		return nil, nil
	})}
	answers := askAll(t.Context(), s.account, asked, true)
	assert.Contains(t, answers[0].Error, "NOT GIVEN BACK")
	assert.Contains(t, answers[0].Error, id)
	assert.Contains(t, answers[0].Error, "Forbidden.Unauthorized")
	assert.Contains(t, answers[1].Error, "not asked")
	assert.Equal(t, exitFailed, newReport(asked, answers, answers).exitCode())
}

func TestAQuestionCannotHaveMoreInstancesThanItSays(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	_, err := s.account.try(t.Context(), buying(func(ctx context.Context, e *trial) (facts, error) {
		_, _, err := e.buy(ctx, 3, nil)
		return nil, err
	}))
	assert.ErrorContains(t, err, "may have 2 instances")
	for _, r := range s.Requests("ScaleWithAdjustment") {
		assert.NotEqual(t, "3", r.Parameters["AdjustmentValue"])
	}
}

func TestNothingIsBoughtInAGroupThatWasNotMadeForIt(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	for _, zone := range simZones {
		s.SetStock("ecs.gn7i-c32g1.32xlarge", zone, 0)
	}
	before := len(s.Requests("ScaleWithAdjustment"))
	for name, spoil := range map[string]func(*alisim.Pool){
		"no-tag":              func(p *alisim.Pool) { p.Tags = map[string]string{"owner": "somebody"} },
		"another-value":       func(p *alisim.Pool) { p.Tags = map[string]string{api.TagContract: "no"} },
		"pool-of-autoscaler":  func(p *alisim.Pool) { p.Tags[api.TagEnabled] = "true" },
		"maximum-too-great":   func(p *alisim.Pool) { p.MaxSize = 3 },
		"minimum":             func(p *alisim.Pool) { p.MinSize = 1 },
		"desired-capacity":    func(p *alisim.Pool) { p.DesiredCapacity = ptr.To(0) },
		"not-active":          func(p *alisim.Pool) { p.LifecycleState = "Inactive" },
		"instances-of-others": func(p *alisim.Pool) { p.Instances = 1 },
		"nothing-in-stock":    func(p *alisim.Pool) { p.InstanceTypes = []string{"ecs.gn7i-c32g1.32xlarge"} },
	} {
		t.Run(name, func(t *testing.T) {
			p := newWorld().Pools[0]
			p.ID, p.Tags = "asg-"+name, maps.Clone(p.Tags)
			spoil(&p)
			require.NoError(t, s.PutGroup(p))
			s.account.group = p.ID
			_, err := s.account.try(t.Context(), buying(func(context.Context, *trial) (facts, error) {
				t.Error("the question is not asked")
				return nil, nil
			}))
			assert.Error(t, err)
			if p.Instances > 0 {
				assert.NotEmpty(t, s.left(t, p.ID), "what is not ours stays")
			}
			if unfit := []string{"no-tag", "another-value", "pool-of-autoscaler", "maximum-too-great", "minimum"}; slices.Contains(unfit, name) {
				assert.ErrorContains(t, options{group: p.ID}.giveBackAll(t.Context(), s.account), "nothing is removed", "nor is anything released in it")
			}
		})
	}
	assert.Len(t, s.Requests("ScaleWithAdjustment"), before)
}

func TestNothingIsBoughtWithoutConsent(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	before := s.RequestCounts()
	for n, got := range askAll(t.Context(), s.account, questions(), false) {
		if questions()[n].spends.anything() {
			assert.Contains(t, got.Unknown, "CONTRACT_SPEND=yes")
		}
	}
	for action, count := range s.RequestCounts() {
		if !strings.HasPrefix(action, "Describe") {
			assert.Equal(t, before[action], count, action)
		}
	}
}

func TestAnEarlierRunThatWasKilledIsGivenBackOnRequest(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	buy, err := s.account.cheapest(t.Context(), simGroup)
	require.NoError(t, err)
	killed := &trial{account: s.account, group: simGroup, offer: buy, most: 2}
	_, err = killed.boughtSome(t.Context(), 2)
	require.NoError(t, err)

	_, err = s.account.try(t.Context(), buying(func(context.Context, *trial) (facts, error) { return nil, nil }))
	assert.ErrorContains(t, err, "-give-back")
	assert.Len(t, s.left(t, simGroup), 2, "whose they are is for a person to say")
	require.NoError(t, options{group: simGroup}.giveBackAll(t.Context(), s.account))
	assert.Empty(t, s.left(t, simGroup))
}

func TestTheCheapestOfTheGroupIsBought(t *testing.T) {
	t.Parallel()
	s := simulated(t)
	buy, err := s.account.cheapest(t.Context(), simGroup)
	require.NoError(t, err)
	assert.Equal(t, "ecs.gn6i-c4g1.xlarge", buy.instanceType)
	assert.Positive(t, buy.spot)
	assert.Greater(t, buy.dearest, buy.onDemand-1e-9)
	ids := slices.Collect(maps.Keys(s.account.offers))
	assert.Contains(t, ids, simGroup)
}
