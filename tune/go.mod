module github.com/headgate/headgate/tune

go 1.26.0

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/headgate/headgate v0.1.0
	github.com/headgate/headgate/config v0.1.0
	github.com/klauspost/compress v1.20.3
)

require (
	github.com/goccy/go-yaml v1.19.2 // indirect
	golang.org/x/text v0.42.0 // indirect
)
