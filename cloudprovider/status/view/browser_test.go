package view

import (
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var screenshots = flag.String("screenshots", "", "Directory for pictures of the page. With it, a missing browser is an error.")

// browser returns a Chromium.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if *screenshots != "" {
		t.Fatal("no Chromium")
	}
	t.Skip("no Chromium")
	return ""
}

// browse has the browser load the file, with a profile of its own, and returns what it prints.
func browse(t *testing.T, path string, args ...string) string {
	t.Helper()
	args = append([]string{
		"--headless", "--disable-gpu", "--no-sandbox", "--hide-scrollbars", "--disable-background-networking", "--no-first-run", "--user-data-dir=" + t.TempDir(),
	}, args...)
	out, err := exec.CommandContext(t.Context(), browser(t), append(args, "file://"+path)...).Output()
	require.NoError(t, err)
	return string(out)
}

// shown is how the browser lays the page out.
type shown struct {
	Width, Content, MinorCells int
	Background                 string
}

// measure returns how the page is laid out in a frame of this width. The script is that of the page around the frame.
func measure(t *testing.T, page string, width int, scheme string) (s shown) {
	t.Helper()
	host := filepath.Join(t.TempDir(), "host.html")
	require.NoError(t, os.WriteFile(host, fmt.Appendf(nil, `<!doctype html><meta name="color-scheme" content="light dark"><iframe width=%d height=2000 style="border:0" srcdoc="%s"></iframe><pre id=out></pre>
<script>onload = () => { const d = document.querySelector('iframe').contentDocument;
out.textContent = JSON.stringify({Width: d.documentElement.clientWidth, Content: d.documentElement.scrollWidth,
MinorCells: [...d.querySelectorAll('td.minor')].filter(e => e.offsetParent).length, Background: getComputedStyle(d.body).backgroundColor}) }</script>`,
		width, html.EscapeString(page)), 0o600))
	dom := browse(t, host, "--dump-dom", "--blink-settings=preferredColorScheme="+scheme)
	found := regexp.MustCompile(`<pre id="out">(.*)</pre>`).FindStringSubmatch(dom)
	require.NotNil(t, found, dom)
	require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(found[1])), &s))
	return s
}

// Values of the setting preferredColorScheme of Blink (mojom::blink::PreferredColorScheme).
const dark, light = "0", "1"

// pictured is the page of which docs/images has pictures.
const pictured = "testdata/pictured.html"

func TestThePicturesOfThePageShowWhatItIs(t *testing.T) {
	if *screenshots != "" {
		t.Skip("they are taken anew")
	}
	shown, err := os.ReadFile(pictured)
	require.NoError(t, err)
	assert.Equal(t, string(shown), page(t, busy()), "docs/images is older than the page: run make pictures")
}

func TestABrowserShowsThePageOnADeskAndOnAPhoneLightAndDark(t *testing.T) {
	browser(t)
	page := page(t, busy())
	desk, phone, night := measure(t, page, 1240, light), measure(t, page, 390, light), measure(t, page, 390, dark)
	for _, s := range []shown{desk, phone, night} {
		assert.LessOrEqual(t, s.Content, s.Width, "nobody has to scroll sideways")
	}
	assert.Positive(t, desk.MinorCells)
	assert.Zero(t, phone.MinorCells, "a phone leaves out what matters less")
	assert.NotEqual(t, phone.Background, night.Background)
	if *screenshots == "" {
		return
	}
	path, err := filepath.Abs(pictured)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, []byte(page), 0o644))
	// A window is never as narrow as a phone, so the page is shown in a frame.
	narrow := filepath.Join(t.TempDir(), "phone.html")
	require.NoError(t, os.WriteFile(narrow, fmt.Appendf(nil, `<!doctype html><meta name="color-scheme" content="light dark"><style>body{margin:0;display:flex;gap:20px}
iframe{border:0;width:390px;height:900px}.light{color-scheme:light}.dark{color-scheme:dark}</style>
<iframe class="light" srcdoc="%[1]s"></iframe><iframe class="dark" srcdoc="%[1]s"></iframe>`, html.EscapeString(page)), 0o600))
	for name, of := range map[string]struct {
		path          string
		width, height int
		scheme        string
	}{"light": {path, 1240, 900, light}, "dark": {path, 1240, 900, dark}, "phone": {narrow, 800, 900, light}} {
		browse(t, of.path, "--screenshot="+filepath.Join(*screenshots, "statusz-"+name+".png"), "--blink-settings=preferredColorScheme="+of.scheme,
			"--window-size="+strconv.Itoa(of.width)+","+strconv.Itoa(of.height))
	}
}
