module github.com/headgate/headgate/contrib/chi

go 1.26.0

require (
	github.com/go-chi/chi/v5 v5.5.0
	github.com/headgate/headgate v0.1.0
)
