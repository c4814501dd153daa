module github.com/headgate/headgate/config

go 1.26

require (
	github.com/goccy/go-yaml v1.19.2
	github.com/headgate/headgate v0.1.0
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
)

require golang.org/x/text v0.14.0 // indirect
