package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/aliyun/alibaba-cloud-sdk-go/sdk/auth/credentials"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/alisim/temper"
)

// command runs the command as from a shell, and returns what it printed and its exit code.
func command(t *testing.T, spend string, args ...string) (told string, code int) {
	t.Helper()
	return commandWith(t, nil, nil, spend, args...)
}

// commandWith runs it with the credentials and the pace of an account, those of a real one where nil.
func commandWith(t *testing.T, provider credentials.CredentialsProvider, passing *pace, spend string, args ...string) (told string, code int) {
	t.Helper()
	var out bytes.Buffer
	o, err := parse(args, spend, &out)
	if err != nil {
		return out.String(), exitFailed
	}
	o.credentials, o.pace = provider, passing
	code = o.run(t.Context(), &out)
	return out.String(), code
}

// standIn is a simulator that stands for a real account.
type standIn struct {
	*simulator
	t     *testing.T
	flags []string
	out   string
}

func newStandIn(t *testing.T, w alisim.World) *standIn {
	t.Helper()
	s, err := simulate(t.Context(), w)
	require.NoError(t, err)
	t.Cleanup(s.stop)
	out := t.TempDir()
	return &standIn{s, t, []string{"-endpoint", s.Endpoint(), "-region", simRegion, "-group", simGroup, "-out", out}, out}
}

// ask runs the command with the stand-in's credentials, and at its pace.
func (s *standIn) ask(spend string, args ...string) (told string, code int) {
	s.t.Helper()
	key := s.AccessKey()
	return commandWith(s.t, credentials.NewStaticAKCredentialsProvider(key.ID, key.Secret), s.account.pace, spend, append(s.flags, args...)...)
}

func (s *standIn) report() (r report) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.out, "contract.json"))
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(text, &r))
	return r
}

func TestAnAccountThatAnswersAlike(t *testing.T) {
	s := newStandIn(t, newWorld())
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_ID", s.AccessKey().ID)
	t.Setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", s.AccessKey().Secret)
	told, code := command(t, "", append(s.flags, "-only", "page-sizes,tag-filter,provider-id,targeting")...)
	assert.Equal(t, exitSame, code, told)
	assert.Regexp(t, `(?m)^same +page-sizes`, told)
	assert.Regexp(t, `(?m)^unknown +provider-id +no cluster was given`, told)
	assert.Regexp(t, `(?m)^unknown +targeting +not asked, since it buys`, told)
	assert.Contains(t, told, "4 questions: 2 answered alike, 0 differ, 2 not known, 0 failed")
	assert.Equal(t, "accepted", s.report().Rows[0].Account.Facts["DescribeScalingGroups 50"])
	assert.False(t, s.report().Spent)
}

func TestAnAccountThatAnswersOtherwise(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.Temper.Targeting, w.Temper.LockReason = temper.TargetingIgnored, ""
	s := newStandIn(t, w)
	require.NoError(t, s.furnish(t.Context()))
	told, code := s.ask("yes", "-only", "page-sizes,lock-reason,targeting")
	assert.Equal(t, exitDiffers, code, told)
	assert.Regexp(t, `(?m)^DIFFERS +lock-reason +rules of the simulator: lockReason`, told)
	assert.Regexp(t, `(?m)^DIFFERS +targeting`, told)
	assert.Contains(t, told, `type: the account says "another", the simulator "as asked"`)
	assert.Contains(t, told, "at most 1 × ecs.gn6i-c4g1.xlarge", "what it may cost is said beforehand")
	assert.Contains(t, told, "CNY")
	assert.Empty(t, s.left(t, simGroup))
	r := s.report()
	assert.Equal(t, []int{1, 2}, []int{r.Same, r.Differing})
	assert.Contains(t, r.Rows[2].Differences, difference{Fact: "type", Account: "another", Simulator: "as asked"})
}

func TestAGroupThatWasNotMadeForItIsRefusedBeforeAnythingIsAsked(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, newWorld())
	require.NoError(t, s.SetGroupTags(simGroup, nil))
	told, code := s.ask("yes")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, told, "it has no tag gpu-spot.autoscaling/contract=may-spend")
	told, code = s.ask("", "-give-back")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, told, "nothing is removed from scaling group")
}

func TestNothingIsBoughtWhereItMayNotBeRemoved(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, newWorld())
	require.NoError(t, s.Fault(alisim.Fault{Action: "RemoveInstances", Kind: alisim.FaultError, Code: "Forbidden.RAM", Status: 403}))
	told, code := s.ask("yes", "-only", "targeting")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, told, "it may be impossible to give it back")
	assert.Contains(t, told, "Forbidden.RAM")
	assert.Empty(t, s.Requests("ScaleWithAdjustment"))
}

func TestAQuestionThatFailsIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, newWorld())
	require.NoError(t, s.Fault(alisim.Fault{Action: "DescribeSpotAdvice", Kind: alisim.FaultError, Code: "Forbidden.RAM", Status: 403}))
	told, code := s.ask("", "-only", "spot-advice,stock")
	assert.Equal(t, exitFailed, code)
	assert.Regexp(t, `(?m)^FAILED +spot-advice +ecs DescribeSpotAdvice: Forbidden.RAM`, told)
	assert.Regexp(t, `(?m)^same +stock`, told, "the others are asked all the same")
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	for _, name := range []string{"ACCESS_KEY_ID", "ACCESS_KEY_SECRET", "ROLE_ARN", "OIDC_PROVIDER_ARN", "OIDC_TOKEN_FILE", "CREDENTIALS_URI", "PROFILE"} {
		t.Setenv("ALIBABA_CLOUD_"+name, "")
	}
	t.Setenv("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")
	t.Setenv("HOME", t.TempDir())
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"nothing given":              {nil, "it needs -region, -group (a scaling group to look at) and credentials"},
		"no group":                   {[]string{"-region", "cn-hangzhou"}, "it needs -region, -group"},
		"no credentials":             {[]string{"-region", "cn-hangzhou", "-group", "asg-1", "-endpoint", "127.0.0.1:1"}, "ALIBABA_CLOUD_ACCESS_KEY_ID"},
		"an endpoint somewhere else": {[]string{"-region", "r", "-group", "asg-1", "-endpoint", "192.0.2.1:80"}, "not a loopback address"},
		"a host name for endpoint":   {[]string{"-region", "r", "-group", "asg-1", "-endpoint", "ess.aliyuncs.com:80"}, "not a loopback address"},
		"an unknown question":        {[]string{"-only", "no-such-question"}, `there is no question "no-such-question"`},
		"an unknown flag":            {[]string{"-spend"}, "flag provided but not defined"},
		"a stray argument":           {[]string{"now"}, `unknown argument "now"`},
	} {
		t.Run(name, func(t *testing.T) {
			told, code := command(t, "", test.args...)
			assert.Equal(t, exitFailed, code)
			assert.Contains(t, told, test.says)
		})
	}
}

func TestAGroupThatDoesNotExist(t *testing.T) {
	t.Parallel()
	told, code := newStandIn(t, newWorld()).ask("", "-group", "asg-nowhere")
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, told, `there is no scaling group "asg-nowhere"`)
}

func TestNoSecretIsPrinted(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, newWorld())
	told, code := commandWith(t, credentials.NewStaticAKCredentialsProvider(s.AccessKey().ID, "a-very-secret-word"), nil, "", s.flags...)
	assert.Equal(t, exitFailed, code)
	assert.Contains(t, told, "SignatureDoesNotMatch")
	assert.NotContains(t, told, "a-very-secret-word")
	assert.NotRegexp(t, `(?i)signature=[^<]`, told)
}

func TestAnInterruptEndsIt(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, newWorld())
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	o, err := parse(s.flags, "", os.Stderr)
	require.NoError(t, err)
	var told bytes.Buffer
	assert.Equal(t, exitFailed, o.run(ctx, &told))
}

func TestOnlyWhatBothSidesToldIsCompared(t *testing.T) {
	assert.Equal(t, []difference{{"b", "1", "2"}}, differences(facts{"a": "1", "b": "1", "only": "here"}, facts{"a": "1", "b": "2", "other": "there"}))
	asked := make([]question, 4)
	same := answer{Facts: facts{"a": "1"}}
	r := newReport(asked, []answer{same, same, same, {Error: "no"}}, []answer{same, {Facts: facts{"a": "2"}}, {Unknown: "nothing"}, same})
	assert.Equal(t, []int{1, 1, 1, 1}, []int{r.Same, r.Differing, r.Unknown, r.Failed})
}
