package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"gpu-spot-autoscaler/cloudprovider/alicloud"
	"gpu-spot-autoscaler/test/alisim"
	"gpu-spot-autoscaler/test/rig"
)

// deployment is what the autoscaler takes itself for a part of, unless flags say otherwise.
const deployment = "gpu-spot-autoscaler"

// tellWithin is how long a failure may go unnamed, leave for a machine that has other things to do included.
const tellWithin = time.Minute

// idleLimit is how long the autoscaler may stand still before its probe fails.
const idleLimit = 20 * time.Second

// failure is something that keeps the autoscaler from its work.
type failure struct {
	// source, pool and reason are what /readyz names it by.
	source, pool, reason string
	// words are of the cause; the fix is checked by them, too.
	words []string
	// world defaults to one with a pool of three zones.
	world *alisim.World
	// flags are given beside --credentials-dir.
	flags []string
	env   func(f *failing) []string
	// breaks is done before the start, fix while the autoscaler runs.
	breaks, fix func(f *failing)
	// restarted: it is a flag that is fixed, so that a rollout ends the process.
	restarted bool
	// needsPod: it shows once something is to be bought.
	needsPod bool
	// lasts: it is left for longer than the autoscaler may be idle.
	lasts bool
	// serves: everything else works meanwhile, so that the leader is ready.
	serves bool
}

// failing is a test case: a failure, and what users are told about it.
type failing struct {
	*suite
	// dir holds the credentials.
	dir        string
	autoscaler *rig.Autoscaler
	other      *rig.Autoscaler
}

func TestEachFailureNamesItsCauseAndFixAndIsOverOnceFixed(t *testing.T) {
	t.Parallel()
	for name, row := range failures() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(spotPool("asg-1", 10))
			if row.world != nil {
				w = *row.world
			}
			f := &failing{suite: newSuite(t, w), dir: t.TempDir()}
			uid := f.deploy()
			f.credentials(f.Cloud.AccessKey().ID, f.Cloud.AccessKey().Secret, "")
			if row.breaks != nil {
				row.breaks(f)
			}
			pod := rig.GPUPod("train", 1)
			if row.needsPod {
				f.Submit(t, pod)
			}
			f.start(row)
			f.named(row, uid)
			if row.lasts {
				rig.Always(t, idleLimit+5*time.Second, "its probe finds it well", func(ctx context.Context) (bool, error) {
					status, err := f.probe(ctx)
					return status == http.StatusOK, err
				})
			}
			f.alive()

			row.fix(f)
			f.over(row)
			if !row.needsPod {
				f.Submit(t, pod)
			}
			f.awaitRunning(pod)
			f.alive()
		})
	}
}

func failures() map[string]failure {
	named := newWorld()
	forbidden := func(action string) func(*failing) {
		return func(f *failing) {
			f.injectFault(alisim.Fault{Action: action, Kind: alisim.FaultError, Code: "Forbidden.RAM", Status: http.StatusForbidden})
		}
	}
	clear := func(f *failing) { f.Cloud.ClearFaults() }
	rightKey := func(f *failing) { f.credentials(f.Cloud.AccessKey().ID, f.Cloud.AccessKey().Secret, "") }
	return map[string]failure{
		"no credentials": {
			source: "refresh", reason: "no_credentials", words: []string{"ALIBABA_CLOUD_ACCESS_KEY_ID", "credentials.secretName"},
			breaks: func(f *failing) { require.NoError(f.t, os.Remove(filepath.Join(f.dir, "ALIBABA_CLOUD_ACCESS_KEY_ID"))) },
			fix:    rightKey, lasts: true,
		},
		"an access key that does not exist": {
			source: "refresh", reason: "unknown_key", words: []string{"InvalidAccessKeyId.NotFound", "Put an access key"},
			breaks: func(f *failing) { f.credentials("LTAInobody", "x", "") },
			fix:    rightKey,
		},
		"a wrong secret": {
			source: "refresh", reason: "wrong_secret", words: []string{"SignatureDoesNotMatch", "ALIBABA_CLOUD_ACCESS_KEY_SECRET"},
			breaks: func(f *failing) { f.credentials(f.Cloud.AccessKey().ID, "wrong", "") },
			fix:    rightKey,
		},
		"an expired token": {
			source: "refresh", reason: "expired_token", words: []string{"InvalidSecurityToken.Expired", "ALIBABA_CLOUD_SECURITY_TOKEN"},
			breaks: func(f *failing) {
				f.Cloud.AddKey("STS.old", "secret", "token", time.Now().Add(-time.Minute))
				f.credentials("STS.old", "secret", "token")
			},
			fix: func(f *failing) {
				f.Cloud.AddKey("STS.new", "secret", "token", time.Now().Add(time.Hour))
				f.credentials("STS.new", "secret", "token")
			},
		},
		"an expired token of the ServiceAccount": {
			source: "refresh", reason: "expired_token", words: []string{"AuthenticationFail.OIDCToken.Expired", "RRSA"},
			flags: []string{"--credentials-dir="},
			env: func(f *failing) []string {
				return []string{
					"ALIBABA_CLOUD_ACCESS_KEY_ID=", "ALIBABA_CLOUD_ACCESS_KEY_SECRET=",
					"ALIBABA_CLOUD_ROLE_ARN=acs:ram::1234567890123456:role/gpu-spot-autoscaler",
					"ALIBABA_CLOUD_OIDC_PROVIDER_ARN=acs:ram::1234567890123456:oidc-provider/ack-rrsa",
					"ALIBABA_CLOUD_OIDC_TOKEN_FILE=" + filepath.Join(f.dir, "oidc"),
					"SSL_CERT_FILE=" + f.Cloud.CAFile(),
				}
			},
			breaks: func(f *failing) { f.write("oidc", webToken(time.Now().Add(-time.Minute))) },
			fix:    func(f *failing) { f.write("oidc", webToken(time.Now().Add(time.Hour))) },
		},
		"a wrong clock": {
			source: "refresh", reason: "clock_skew", words: []string{"wrong by 20m", "InvalidTimeStamp.Expired", "Synchronize the clock"},
			breaks: func(f *failing) { f.Cloud.Skew(20 * time.Minute) },
			fix:    func(f *failing) { f.Cloud.Skew(0) },
		},
		"a call refused that reads pools": {
			source: "refresh", reason: "not_allowed", words: []string{"ess DescribeScalingInstances", "Forbidden.RAM", "deploy/ram-policy.json"},
			breaks: forbidden("DescribeScalingInstances"), fix: clear,
		},
		"a call refused that asks for notices": {
			source: "poll", reason: "not_allowed", words: []string{"ecs DescribeInstances", "Forbidden.RAM", "deploy/ram-policy.json"},
			breaks: forbidden("DescribeInstances"), fix: clear,
		},
		"a call refused that buys": {
			source: "pools", pool: "asg-1", reason: "not_allowed", words: []string{"ess ScaleWithAdjustment", "Forbidden.RAM", "deploy/ram-policy.json"},
			breaks: forbidden("ScaleWithAdjustment"), fix: clear, needsPod: true, serves: true,
		},
		"a wrong region": {
			source: "refresh", reason: "wrong_region", words: []string{"InvalidRegionId.NotFound", "Correct --region"},
			flags: []string{"--region=cn-nowhere"}, restarted: true,
			fix: func(f *failing) { f.restart() },
		},
		"no pool": {
			source: "pools", reason: "no_pools", words: []string{"k8s.io/cluster-autoscaler/" + rig.ClusterName, "Tag a scaling group"},
			world: &named, serves: true,
			fix: func(f *failing) { require.NoError(f.t, f.Cloud.PutGroup(spotPool("asg-1", 10))) },
		},
		"a pool named that does not exist": {
			source: "pools", pool: "asg-1", reason: "not_found", words: []string{"does not exist", "Correct --nodes"},
			world: &named, flags: []string{"--cluster-name=", "--nodes=0:10:asg-1"}, serves: true,
			fix: func(f *failing) { require.NoError(f.t, f.Cloud.PutGroup(spotPool("asg-1", 10))) },
		},
		"a pool that is tagged for two clusters": {
			source: "pools", pool: "asg-1", reason: "other_clusters", words: []string{"another", "one cluster only"}, serves: true,
			breaks: func(f *failing) {
				tags := spotPool("asg-1", 10).Tags
				tags["k8s.io/cluster-autoscaler/another"] = "owned"
				require.NoError(f.t, f.Cloud.SetGroupTags("asg-1", tags))
			},
			fix: func(f *failing) { require.NoError(f.t, f.Cloud.SetGroupTags("asg-1", spotPool("asg-1", 10).Tags)) },
		},
		"two autoscalers on one group": {
			source: "pools", pool: "asg-1", reason: "other_autoscaler", words: []string{"kube-system/another", "Stop one of the two"}, serves: true,
			// A purchase is reported for 60 scan intervals: a minute is short on a machine that has other things to do.
			flags: []string{"--scan-interval=1500ms"},
			breaks: func(f *failing) {
				f.other = f.RunAutoscaler(f.t, "--leader-elect-resource-name=another")
				f.Submit(f.t, rig.GPUPod("theirs", 1))
				// Not until the pod runs: the purchase is reported for 90 seconds.
				f.eventually("the other one has bought", func(context.Context) (bool, error) { return len(f.instances("asg-1")) > 0, nil })
			},
			fix: func(f *failing) { require.NoError(f.t, f.other.Stop()) },
		},
		"ACK's own autoscaler on the same pool": {
			source: "pools", pool: "asg-1", reason: "ack_autoscaler", words: []string{"kube-system/autoscaler-meta", "scaling mode"}, serves: true,
			breaks: func(f *failing) {
				_, err := f.Client.CoreV1().ConfigMaps(rig.Namespace).Create(f.t.Context(), &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: "autoscaler-meta"},
					Data:       map[string]string{"autoscaler-meta": `{"scaling_configurations":{"asg-1":{"id":"asg-1","labels":"","taints":""}}}`},
				}, metav1.CreateOptions{})
				require.NoError(f.t, err)
			},
			fix: func(f *failing) {
				require.NoError(f.t, f.Client.CoreV1().ConfigMaps(rig.Namespace).Delete(f.t.Context(), "autoscaler-meta", metav1.DeleteOptions{}))
			},
		},
	}
}

// deploy makes the Deployment that the autoscaler takes itself for a part of, without replicas, and returns its UID.
func (f *failing) deploy() string {
	f.t.Helper()
	none, labels := int32(0), map[string]string{"app": deployment}
	made, err := f.Client.AppsV1().Deployments(rig.Namespace).Create(f.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: deployment},
		Spec: appsv1.DeploymentSpec{
			Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "autoscaler", Image: "none"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(f.t, err)
	return string(made.UID)
}

// credentials puts them where the autoscaler finds those of a mounted Secret.
func (f *failing) credentials(id, secret, token string) {
	f.t.Helper()
	f.write("ALIBABA_CLOUD_ACCESS_KEY_SECRET", secret)
	f.write("ALIBABA_CLOUD_SECURITY_TOKEN", token)
	f.write("ALIBABA_CLOUD_ACCESS_KEY_ID", id)
}

// write replaces a file as a whole, as the kubelet does.
func (f *failing) write(name, content string) {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	require.NoError(f.t, os.WriteFile(path+".new", []byte(content), 0o600))
	require.NoError(f.t, os.Rename(path+".new", path))
}

// start runs the autoscaler with the limit on its idleness.
func (f *failing) start(row failure) {
	f.t.Helper()
	flags := append([]string{
		"--credentials-dir=" + f.dir, "--sts-endpoint=" + f.Cloud.STSEndpoint(),
		"--max-inactivity=" + idleLimit.String(), "--max-failing-time=" + idleLimit.String(),
	}, row.flags...)
	var env []string
	if row.env != nil {
		env = row.env(f)
	}
	f.autoscaler = f.RunAutoscalerWithEnv(f.t, env, flags...)
}

// restart is what a rollout does once a flag is corrected.
func (f *failing) restart() {
	f.t.Helper()
	require.NoError(f.t, f.autoscaler.Stop())
	f.start(failure{})
}

// line is the beginning of the failure's line in /readyz.
func (row failure) line() string {
	return "[!]" + strings.Join(slices.DeleteFunc([]string{row.source, row.pool, row.reason}, func(s string) bool { return s == "" }), " ") + ": "
}

// named waits until the failure and its fix are in /readyz, in an Event on the Deployment, in the metrics and in the status.
func (f *failing) named(row failure, deploymentUID string) {
	f.t.Helper()
	var text string
	rig.Eventually(f.t, tellWithin, row.line()+" in /readyz", func(ctx context.Context) (bool, error) {
		ready, said, err := f.autoscaler.Readyz(ctx)
		text = lineOf(said, row.line())
		if text != "" && ready == row.serves || err != nil {
			return err == nil, err
		}
		return false, fmt.Errorf("ready is %v, said is: %s", ready, said)
	})
	for _, word := range row.words {
		assert.Contains(f.t, text, word)
	}
	if remedy, known := alicloud.Remedies[alicloud.Reason(row.reason)]; known {
		assert.Contains(f.t, text, remedy.Fix)
	}
	said := strings.TrimPrefix(text, row.line())
	rig.Eventually(f.t, tellWithin, "an Event on the Deployment that says: "+said, func(ctx context.Context) (bool, error) {
		messages, err := f.describe(ctx, deploymentUID, corev1.EventTypeWarning)
		return slices.ContainsFunc(messages, func(message string) bool { return strings.HasSuffix(message, said) }), err
	})
	rig.Eventually(f.t, tellWithin, row.reason+" in the metrics", func(ctx context.Context) (bool, error) {
		metrics, err := f.autoscaler.Metrics(ctx)
		for _, metric := range metrics["gpu_spot_problems"].GetMetric() {
			labels := metric.GetLabel()
			if labels[0].GetValue() == row.reason && labels[1].GetValue() == row.source {
				return metric.GetGauge().GetValue() == 1, err
			}
		}
		return false, err
	})
	rig.Eventually(f.t, tellWithin, row.reason+" in the status", func(ctx context.Context) (bool, error) {
		status, err := f.status(ctx)
		return strings.Contains(status, "reason: "+row.reason), err
	})
}

// over waits until nothing is left of the failure, and the leader is ready.
func (f *failing) over(row failure) {
	f.t.Helper()
	f.eventually("the leader is ready, without "+row.line(), func(ctx context.Context) (bool, error) {
		ready, text, err := f.autoscaler.Readyz(ctx)
		return ready && lineOf(text, row.line()) == "", err
	})
	f.eventually("the status is without "+row.reason, func(ctx context.Context) (bool, error) {
		status, err := f.status(ctx)
		return strings.Contains(status, "ready: true") && !strings.Contains(status, "reason: "+row.reason), err
	})
	f.awaitEvent("SpotLeaderReady")
	if !row.restarted {
		f.awaitEvent("SpotProblemOver", row.reason)
	}
}

// alive says that the process neither ended nor would be ended by its probe.
func (f *failing) alive() {
	f.t.Helper()
	select {
	case <-f.autoscaler.Done():
		f.t.Fatal("the process ended")
	default:
	}
	status, err := f.probe(f.t.Context())
	require.NoError(f.t, err)
	assert.Equal(f.t, http.StatusOK, status, "the probe that restarts it")
}

// probe is what the kubelet does, and by which it restarts what does not answer with 200.
func (f *failing) probe(ctx context.Context) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.autoscaler.Address()+"/health-check", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// describe returns the Events of the type that kubectl describe shows of the Deployment.
func (f *failing) describe(ctx context.Context, uid, eventType string) ([]string, error) {
	list, err := f.Client.CoreV1().Events(rig.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fmt.Sprintf(
		"involvedObject.kind=Deployment,involvedObject.name=%s,involvedObject.uid=%s,type=%s", deployment, uid, eventType)})
	if err != nil {
		return nil, err
	}
	var messages []string
	for _, event := range list.Items {
		messages = append(messages, event.Message)
	}
	return messages, nil
}

// status is what the ConfigMap says.
func (f *failing) status(ctx context.Context) (string, error) {
	configMap, err := f.Client.CoreV1().ConfigMaps(rig.Namespace).Get(ctx, deployment+"-status", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return configMap.Data["status"], nil
}

// lineOf is the line with the beginning, empty where there is none.
func lineOf(text, beginning string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, beginning) {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// webToken returns an unsigned JSON web token that expires.
func webToken(expires time.Time) string {
	part := func(json string) string { return base64.RawURLEncoding.EncodeToString([]byte(json)) }
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"iss":"https://oidc","sub":"system:serviceaccount:kube-system:gpu-spot-autoscaler","aud":"sts.aliyuncs.com","exp":%d}`,
		expires.Unix())) + "." + part("none")
}

func TestAStandbyIsReadyWithoutCredentials(t *testing.T) {
	s := newSuite(t, newWorld(spotPool("asg-1", 10)))
	elected := []string{"--leader-elect=true", "--leader-elect-resource-name=" + deployment}
	leader := s.RunAutoscaler(t, elected...)
	s.eventually("the leader is ready", func(ctx context.Context) (bool, error) {
		ready, _, err := leader.Readyz(ctx)
		return ready, err
	})
	standby := s.RunAutoscaler(t, append(elected, "--credentials-dir="+t.TempDir())...)
	s.eventually("the standby is ready", func(ctx context.Context) (bool, error) {
		ready, text, err := standby.Readyz(ctx)
		return ready && strings.Contains(text, "standby"), err
	})
	leader.Kill()
	s.eventually("as the leader it is not", func(ctx context.Context) (bool, error) {
		ready, text, err := standby.Readyz(ctx)
		return !ready && strings.Contains(text, "no_credentials"), err
	})
}
