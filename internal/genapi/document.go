// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/invopop/jsonschema"
	"go.yaml.in/yaml/v3"

	"culvert/internal/api"
)

// head stands above the document.
const head = `# SPDX-License-Identifier: Apache-2.0
# Written by internal/genapi from the Go types of the answers: go generate ./internal/genapi
`

// The parts of an OpenAPI document, in their order.
type (
	openAPI struct {
		OpenAPI    string `json:"openapi"`
		Info       info   `json:"info"`
		Paths      object `json:"paths"`
		Components object `json:"components"`
		// Verbs has a schema for each verb with -j.
		Verbs object `json:"x-culvert-verbs"`
	}
	info struct {
		Title       string `json:"title"`
		Description string `json:"description"`
		Version     string `json:"version"`
		License     object `json:"license"`
	}
	// object is an object whose members are sorted by name.
	object map[string]any
)

const description = `What a data plane of culvert does, over HTTP on Unix sockets. /run/culvert/NAME.show.sock, for members of the group culvert, only
shows: it has the paths with GET but for /v1/capture. /run/culvert/NAME.sock, for root, has all paths. Answers are those of the verbs
with -j. What verbs without a path print with -j is below x-culvert-verbs. Later versions add members and never rename or remove them.`

// failure is an answer that is an error.
type failure struct{ status, name, what string }

// failed are the answers of paths that show something. Only a path that needs a stage has the one of status 404.
var failed = []failure{
	{"400", "wrong", "The query of the URL, or the request, is wrong."},
	{"404", "absent", "The data plane does not have this stage."},
	{"405", "method", "Another method is needed: the header Allow has it."},
	{"500", "failed", "It cannot be read, or is too large."},
	{"503", "busy", "It takes too long: try again later."},
}

// Capturing is refused as changes are.
func capturing(p api.Path) []failure {
	if p.Path != api.CapturePath {
		return nil
	}
	return []failure{{"409", "conflict", ""}, {"422", "refused", ""}}
}

// refused are further answers of paths that change something. Nothing is changed then.
var refused = []failure{
	{"408", "slow", "The request does not go on."},
	{"409", "conflict", "Another reload is under way, or somebody else captures."},
	{"413", "large", "The request is too long."},
	{"415", "kind", "The request is no JSON."},
	{"422", "refused", "What runs, or the file, is against it."},
}

// document returns the document. Comments are read from the sources below top.
func document(top string) ([]byte, error) {
	s, err := newSchemas(top)
	if err != nil {
		return nil, err
	}
	paths := object{}
	for _, p := range append(api.Paths(), append(api.Controls(), api.Changes()...)...) {
		operation, err := s.operation(p)
		if err != nil {
			return nil, fmt.Errorf("path %s: %w", p.Path, err)
		}
		method := "get"
		if p.Method != "" {
			method = strings.ToLower(p.Method)
		}
		paths[p.Path] = object{method: operation}
	}
	schema, err := s.add(api.Error{})
	if err != nil {
		return nil, err
	}
	failures := object{}
	for _, f := range append(failed, refused...) {
		failures[f.name] = object{"description": f.what, "content": object{"application/json": object{"schema": schema}}}
	}
	verbs, err := s.verbs()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(openAPI{
		OpenAPI: "3.1.1",
		Info: info{
			Title: "culvert", Description: description, Version: "1",
			License: object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
		},
		Paths:      paths,
		Components: object{"responses": failures, "schemas": s.all},
		Verbs:      verbs,
	})
	if err != nil {
		return nil, err
	}
	return asYAML(b)
}

// asYAML returns a JSON text as YAML, in the same order.
func asYAML(text []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil { // JSON is YAML
		return nil, err
	}
	if err := plain(&n); err != nil {
		return nil, err
	}
	b := bytes.NewBufferString(head)
	enc := yaml.NewEncoder(b)
	enc.SetIndent(2)
	if err := enc.Encode(&n); err != nil {
		return nil, err
	}
	return b.Bytes(), enc.Close()
}

// plain takes JSON's style away, but for texts that some readers of YAML would not take for texts, as on and yes.
func plain(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode && n.Tag == "!!str" {
		return n.Encode(n.Value)
	}
	n.Style = 0
	for _, c := range n.Content {
		if err := plain(c); err != nil {
			return err
		}
	}
	return nil
}

// schemas are the schemas of types, by name.
type schemas struct {
	// reflector is for answers, which may have more members in a later version, strict for requests.
	reflector, strict jsonschema.Reflector
	all               map[string]json.RawMessage
}

func newSchemas(top string) (*schemas, error) {
	s := &schemas{all: make(map[string]json.RawMessage)}
	s.reflector = jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true, Namer: name, Mapper: texts}
	before, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	// Paths of packages begin with the folder that is named here.
	if err := os.Chdir(top); err != nil {
		return nil, err
	}
	err = s.reflector.AddGoComments("culvert", "./internal", jsonschema.WithFullComment())
	for of, comment := range s.reflector.CommentMap {
		s.reflector.CommentMap[of] = strings.Join(strings.Fields(comment), " ")
	}
	if back := os.Chdir(before); err == nil {
		err = back
	}
	s.strict = s.reflector
	s.strict.AllowAdditionalProperties = false
	return s, err
}

// name returns the name of a type's schema: PACKAGE.TYPE. It is "" for types that are in no package.
func name(t reflect.Type) string {
	if t.PkgPath() == "" || t.Name() == "" {
		return ""
	}
	return path.Base(t.PkgPath()) + "." + t.Name()
}

// texts returns the schema of a type that is text in JSON though it is not in Go.
func texts(t reflect.Type) *jsonschema.Schema {
	marshals := reflect.TypeFor[encoding.TextMarshaler]()
	if t == reflect.TypeFor[time.Time]() || !t.Implements(marshals) && !reflect.PointerTo(t).Implements(marshals) {
		return nil
	}
	return &jsonschema.Schema{Type: "string"}
}

// add adds the schema of a value's type, with those that it refers to, and returns the one to use for the value.
func (s *schemas) add(value any) (json.RawMessage, error) {
	return s.addBy(&s.reflector, value)
}

func (s *schemas) addBy(by *jsonschema.Reflector, value any) (json.RawMessage, error) {
	root := by.Reflect(value)
	root.Version = ""
	for name, schema := range root.Definitions {
		b, err := located(schema)
		if err != nil {
			return nil, err
		}
		if before, ok := s.all[name]; ok && !bytes.Equal(before, b) {
			return nil, fmt.Errorf("two types are called %s: rename one", name)
		}
		s.all[name] = b
	}
	root.Definitions = nil
	return located(root)
}

// located returns a schema as JSON, with references to where the schemas are.
func located(s *jsonschema.Schema) (json.RawMessage, error) {
	b, err := json.Marshal(s)
	return bytes.ReplaceAll(b, []byte(`"#/$defs/`), []byte(`"#/components/schemas/`)), err
}

// operation describes what a path answers.
func (s *schemas) operation(p api.Path) (object, error) {
	content := object{"text/plain": object{"schema": object{"type": "string"}}}
	if p.Answer != nil {
		schema, err := s.add(p.Answer)
		if err != nil {
			return nil, err
		}
		kind := "application/json"
		if p.Content != "" {
			kind = p.Content
		}
		content = object{kind: object{"schema": schema}}
	} else if p.Content != "" {
		content = object{p.Content: object{"schema": object{"type": "string", "format": "binary"}}}
	}
	responses := object{"200": object{"description": p.What, "content": content}}
	for _, f := range failed {
		if f.status != "404" || p.Kind != "" {
			responses[f.status] = object{"$ref": "#/components/responses/" + f.name}
		}
	}
	o := object{"summary": p.What, "operationId": operationID(p.Path), "responses": responses}
	if p.Request != nil {
		schema, err := s.addBy(&s.strict, p.Request)
		if err != nil {
			return nil, err
		}
		o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": schema}}}
		for _, f := range refused {
			if f.status != "409" || p.Kind == "" && p.Path == api.ReloadPath {
				responses[f.status] = object{"$ref": "#/components/responses/" + f.name}
			}
		}
	}
	if p.Verb != "" {
		o["description"] = "The same as `" + p.Verb + "`."
	}
	for _, f := range capturing(p) {
		responses[f.status] = object{"$ref": "#/components/responses/" + f.name}
	}
	var parameters []object
	for _, q := range p.Parameters {
		schema := object{"type": "integer", "minimum": q.Least, "maximum": q.Most, "default": q.Usual}
		switch {
		case q.IsText():
			schema = object{"type": "string"}
		case q.IsFlag():
			schema = object{"type": "boolean", "default": false}
		case q.IsList():
			schema = object{"type": "array", "items": object{"type": "string"}}
		}
		parameters = append(parameters, object{"name": q.Name, "in": "query", "description": q.What, "schema": schema})
	}
	if parameters != nil {
		o["parameters"] = parameters
	}
	return o, nil
}

// operationID returns the name of the function for a path that generators of clients make: lbFlows for /v1/lb/flows.
func operationID(path string) string {
	words := strings.FieldsFunc(strings.TrimPrefix(path, "/v1"), func(r rune) bool { return r == '/' })
	for n := range words[min(1, len(words)):] {
		words[n+1] = strings.ToUpper(words[n+1][:1]) + words[n+1][1:]
	}
	if len(words) == 0 {
		return "paths"
	}
	return strings.Join(words, "")
}
