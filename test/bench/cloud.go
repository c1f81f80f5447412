package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"gpu-spot-autoscaler/test/alisim"
)

// callLatency is what a call to the cloud costs at least: about what the real services take from within their region.
const callLatency = 20 * time.Millisecond

// cloud is a simulated cloud in a process of its own, so that the memory it allocates is not counted as the client's.
type cloud struct {
	cloudInfo
	region  string
	command *exec.Cmd
	stdin   io.Closer
}

// cloudInfo is what the process says when it is up.
type cloudInfo struct {
	Endpoint  string
	AccessKey alisim.AccessKey
	// Temper is how hard it is; see temperOf.
	Temper string
}

// cloudArguments make this binary serve a cloud instead of measuring.
var cloudArguments = []string{"serve-cloud"}

// serveCloud runs the world given on its input until the input ends, every call of it as slow as callLatency.
func serveCloud(ctx context.Context, in io.Reader, out io.Writer) error {
	decoder := json.NewDecoder(in)
	var world alisim.World
	if err := decoder.Decode(&world); err != nil {
		return fmt.Errorf("read the world: %w", err)
	}
	server, err := alisim.Start(ctx, world, alisim.Options{})
	if err != nil {
		return err
	}
	defer server.Stop()
	if err := server.Fault(alisim.Fault{Kind: alisim.FaultLatency, Latency: callLatency}); err != nil {
		return err
	}
	if err := json.NewEncoder(out).Encode(cloudInfo{server.Endpoint(), server.AccessKey(), temperOf(server.Temper())}); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, io.MultiReader(decoder.Buffered(), in))
	return err
}

// startCloud starts the process. It ends with stop, and with this process however that one ends.
func startCloud(ctx context.Context, world alisim.World) (*cloud, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &cloud{region: world.Region, command: exec.CommandContext(ctx, self, cloudArguments...)}
	c.command.Stderr = os.Stderr
	c.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := c.command.StdinPipe()
	if err != nil {
		return nil, err
	}
	c.stdin = stdin
	stdout, err := c.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.command.Start(); err != nil {
		return nil, err
	}
	if err := errors.Join(json.NewEncoder(stdin).Encode(world), json.NewDecoder(stdout).Decode(&c.cloudInfo)); err != nil {
		return nil, errors.Join(fmt.Errorf("start a simulated cloud: %w", err), c.stop())
	}
	return c, nil
}

func (c *cloud) stop() error {
	c.stdin.Close()
	return c.command.Wait()
}

// state is everything there is in the cloud.
func (c *cloud) state(ctx context.Context) (alisim.State, error) {
	var state alisim.State
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.Endpoint+"/_sim/state", nil)
	if err != nil {
		return state, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return state, err
	}
	defer response.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(response.Body); err != nil {
		return state, err
	}
	return state, json.Unmarshal(body.Bytes(), &state)
}

// calls returns how many calls of each action came while work ran.
func (c *cloud) calls(ctx context.Context, work func() error) (map[string]int, error) {
	before, err := c.state(ctx)
	if err != nil {
		return nil, err
	}
	if err := work(); err != nil {
		return nil, err
	}
	after, err := c.state(ctx)
	if err != nil {
		return nil, err
	}
	calls := after.Requests
	for action, n := range before.Requests {
		calls[action] -= n
	}
	maps.DeleteFunc(calls, func(_ string, n int) bool { return n == 0 })
	return calls, nil
}
