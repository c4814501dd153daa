package app

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/server/dashboard"
	"github.com/headgate/headgate/store/memory"
)

// loginBytes bounds the counters of attempts to sign in. There is room for every network of a /48,
// so nobody who owns one can fill the memory and make administrators share counters with strangers.
const loginBytes = 32 << 20

// openDashboard makes the dashboard.
func (a *App) openDashboard() {
	s := &a.settings
	logins := headgate.New(memory.New(memory.MaxBytes(loginBytes)), headgate.MustRule("dashboard.login", headgate.PerMinute(5), headgate.Sliding(30, time.Hour)))
	a.dashboard = dashboard.New(dashboard.Options{
		API: a.answers, Token: s.AdminToken, Logins: logins, Hosts: s.DashboardHosts, Secure: a.certificates != nil, Audit: &a.audit, Logger: s.Logger,
	})
	server := &http.Server{
		Handler:           a.dashboard,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       s.readTimeout,
		WriteTimeout:      writeTimeout, // of pages; a stream has deadlines of its own
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	// Streams last until they are ended.
	server.RegisterOnShutdown(a.dashboard.Close)
	if a.certificates != nil {
		server.TLSConfig = a.certificates.config()
		a.add("dashboard", s.DashboardListen, tlsServer{server})
		return
	}
	a.add("dashboard", s.DashboardListen, server)
}

// dashboardMistakes are what is wrong with the settings of the dashboard.
func (s *Settings) dashboardMistakes() (problems []string) {
	if s.DashboardListen == "" {
		if len(s.DashboardHosts) > 0 {
			problems = append(problems, "dashboard host: there is no dashboard; give it an address")
		}
		return problems
	}
	if p := checkListen(s.DashboardListen); p != "" {
		return append(problems, "dashboard listen: "+p)
	}
	if s.NoInsight {
		problems = append(problems, "dashboard listen: the dashboard shows insight, which is turned off")
	}
	if s.AdminToken == "" && !onLoopback(s.DashboardListen) {
		problems = append(problems, fmt.Sprintf("dashboard listen: %q can be reached from elsewhere, and there is no admin token for people to sign in with; give one, or an address such as 127.0.0.1:9000", s.DashboardListen))
	}
	return problems
}

// onLoopback reports whether an address can be reached only from this machine.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
