package view

import (
	_ "embed" // the template and the style
	"html/template"
	"io"

	"gpu-spot-autoscaler/cloudprovider/status"
)

// Style has the colours and fonts of all pages of the project, light and dark, as CSS.
//
//go:embed style.css
var Style string

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("statusz").Funcs(template.FuncMap{
	"style": func() template.CSS { return template.CSS(Style) },
}).Parse(pageText))

// ContentSecurityPolicy is that of the page, which loads nothing and runs nothing.
const ContentSecurityPolicy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// WriteHTML writes the status as a page that needs nothing beside itself, and that a browser loads anew every ten seconds. The error is that of
// the writer.
func WriteHTML(to io.Writer, s *status.Status) error {
	return pageTemplate.Execute(to, of(s))
}
