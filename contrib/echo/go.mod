module github.com/headgate/headgate/contrib/echo

go 1.26.0

require (
	github.com/headgate/headgate v0.1.0
	github.com/labstack/echo/v5 v5.3.1
)

require golang.org/x/time v0.15.0 // indirect
