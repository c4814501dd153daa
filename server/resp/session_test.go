package resp

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/store/memory"
)

func TestSession(t *testing.T) {
	c, _ := startSample(t, Options{Version: "v1.2.3"})
	c.exchanges([]exchange{
		{"PING", "+PONG"},
		{"ping hello", "hello"},
		{"ECHO hello", "hello"},
		{"ECHO", "-ERR wrong number of arguments for ECHO: 0; write ECHO message"},
		{"SELECT 0", "+OK"},
		{"SELECT 1", "-ERR there is no database but 0"},
		{"HELLO", "[server headgate version v1.2.3 mode standalone role master proto 2 id 1 modules []]"},
		{"HELLO 3 SETNAME me", "{server: headgate, version: v1.2.3, mode: standalone, role: master, proto: 3, id: 1, modules: []}"},
		{"CLIENT GETNAME", "me"},
		{"HELLO 4", "-NOPROTO there are protocol versions 2 and 3 only"},
		{"HELLO 2 SETNAME", `-ERR HELLO does not know "SETNAME", or something is missing behind it; write HELLO [version] [AUTH user token] [SETNAME name]`},
		{"HELLO 2 AUTH default a", "-ERR a token was shown, but the server was started without one; are the client's settings those of this server?"},
		{"AUTH a", "-ERR a token was shown, but the server was started without one…"},
		{"HELLO", "{server: headgate, …"}, // As it was: nothing of what failed was done.
		{"CLIENT ID", "1"},
		{"client setname you", "+OK"},
		{"CLIENT SETNAME a·b", "-ERR byte 2 of the client's name is not a visible ASCII character"},
		{"HELLO 2 SETNAME " + strings.Repeat("n", 129), "-ERR the client's name has 129 bytes, must have at most 128"},
		{"CLIENT GETNAME", "you"},
		{"CLIENT SETINFO LIB-NAME go-redis", "+OK"},
		{"CLIENT TRACKING ON OPTIN", "+OK"},
		{"CLIENT NO-TOUCH ON", "+OK"},
		{"CLIENT NO-EVICT ON", "+OK"},
		{"CLIENT KILL 7", `-ERR CLIENT "KILL" with 1 arguments is not known here; there are ID, GETNAME, SETNAME, SETINFO, TRACKING, NO-EVICT and NO-TOUCH`},
		{"RESET", "+RESET"},
		{"CLIENT GETNAME", "nil"},
		{"HELLO", "[server headgate …"},
		{"GET a", `-ERR unknown command "GET"; COMMAND LIST has those that there are`},
		{"COMMAND COUNT", "30"},
		{"COMMAND LIST", "[HG.CHECK HG.PEEK HG.REFUND HG.RESET HG.RESERVE HG.SETTLE HG.CANCEL HG.RULES CL.THROTTLE DEL HG.ACQUIRE HG.RENEW HG.RELEASE HG.POST PING ECHO QUIT HELLO AUTH SELECT RESET CLIENT CLUSTER READONLY READWRITE MULTI EXEC DISCARD INFO COMMAND]"},
		{"COMMAND INFO cl.throttle get PING", "[[cl.throttle -5 [+fast] 1 1 1 [] [] [] []] nil [ping -1 [+fast] 0 0 0 [] [] [] []]]"},
		{"COMMAND", "[[hg.check -3 [+fast] 2 2 1 [] [] [] []] …"},
		{"COMMAND DOCS hg.settle GET", "[hg.settle [summary Makes the units of a reservation those that the work did cost, or that are charged for work that has ended with the HTTP status. group headgate arguments [[name id type string] [name cost type string token COST flags [+optional]] [name status type string token STATUS flags [+optional]]]]]"},
		{"COMMAND DOCS HELLO", "[hello [summary Chooses RESP2 or RESP3, and says what is there. group connection arguments [" +
			"[name version type string flags [+optional]] [name auth type block token AUTH flags [+optional] arguments [[name user type string] [name token type string]]] [name name type string token SETNAME flags [+optional]]]]]"},
		{"COMMAND GETKEYS", `-ERR COMMAND "GETKEYS" is not known here; there are COUNT, LIST, INFO and DOCS`},
		{"INFO", "# Server\r\nheadgate_version:v1.2.3\r\n…"},
	})
	if got := c.do("INFO everything"); !strings.Contains(got, "\r\nconnected_clients:1\r\n") || !strings.Contains(got, "\r\nloading:0\r\n") || !strings.Contains(got, "\r\npolicy_hash:5ec2e7\r\n") {
		t.Errorf("INFO: %s", got)
	}
	c.write(wire("QUIT") + wire("PING"))
	if got := c.answer(); got != "+OK" || !c.ended() {
		t.Errorf("QUIT is answered with %s, and does not end the connection", got)
	}
}

func TestToken(t *testing.T) {
	const right = "correct-horse-battery-staple"
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{Token: right})
	noAuth := "-NOAUTH Authentication required: AUTH TOKEN, or HELLO 3 AUTH default TOKEN"
	wrong := "-WRONGPASS the token is another one, or the user is not default"
	c := dial(t, addr)
	c.exchanges([]exchange{
		{"PING", noAuth},
		{"HG.CHECK mail a", noAuth},
		{"CL.THROTTLE a 1 1 1", noAuth},
		{"COMMAND DOCS", noAuth},
		{"NOTHING", noAuth},
		{"HELLO", "-NOAUTH HELLO needs the token: HELLO 3 AUTH default TOKEN"},
		{"HELLO 3", "-NOAUTH HELLO needs the token…"},
		{"AUTH x", wrong},
		{"AUTH " + right[:len(right)-1], wrong},
		{"AUTH _", wrong},
		{"AUTH root " + right, wrong},
		{"HELLO 3 AUTH default x", wrong},
		{"PING", noAuth},
		{"AUTH " + right, "+OK"},
		{"PING", "+PONG"},
		{"AUTH x", wrong},
		{"PING", "+PONG"},
		{"RESET", "+RESET"},
		{"PING", noAuth},
		{"HELLO 3 AUTH default " + right + " SETNAME me", "{server: headgate, …"},
		{"CLIENT GETNAME", "me"},
		{"RESET", "+RESET"},
		{"AUTH default " + right, "+OK"},
		{"HELLO", "[server headgate …"},
	})
	// In one pipeline, and for no others.
	other := dial(t, addr)
	other.write(wire("PING") + wire("AUTH", right) + wire("PING"))
	for _, want := range []string{noAuth, "+OK", "+PONG"} {
		if got := other.answer(); got != want {
			t.Errorf("answered %s, want %s", got, want)
		}
	}
	dial(t, addr).exchanges([]exchange{{"PING", noAuth}, {"QUIT", "+OK"}})
}

// Whoever has not shown the token gets less memory.
func TestStrangersAreBounded(t *testing.T) {
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{Token: "0123456789abcdef"})
	for text, want := range map[string]string{
		"*17\r\n":                       "-ERR Protocol error: the arguments of a command are bounded to 16",
		"*2\r\n$4\r\nAUTH\r\n$4097\r\n": "-ERR Protocol error: the bytes of a command are bounded to 4096",
	} {
		c := dial(t, addr)
		c.write(text)
		if got := c.answer(); got != want || !c.ended() {
			t.Errorf("%q is answered with %s, want %s and the end", text, got, want)
		}
	}
}

// locked is a buffer for a log.
type locked struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

func (l *locked) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.String()
}

func TestAccessLog(t *testing.T) {
	log := new(locked)
	_, addr := start(t, over(samplePolicy(t), memory.New()), Options{API: said(t), AccessLog: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
	c := dial(t, addr)
	c.do("HG.POST /geheim {}") // The API logs it, with its address.
	c.do("HG.POST geheim")
	c.do("HG.CHECK mail geheim")
	c.do("HG.CHECK mail geheim COST 0")
	c.do("GEHEIM geheim")
	got := log.text()
	for _, want := range []string{"msg=request command=HG.CHECK failed=false took=", "command=HG.CHECK failed=true", "command=unknown failed=true", "from=127.0.0.1:"} {
		if !strings.Contains(got, want) {
			t.Errorf("the log has no %q:\n%s", want, got)
		}
	}
	if strings.Count(got, "command=HG.POST failed=true") != 1 || strings.Count(got, "command=HG.POST") != 1 {
		t.Errorf("the log does not have HG.POST once:\n%s", got)
	}
	if strings.Contains(strings.ToLower(got), "geheim") {
		t.Errorf("the log has an argument:\n%s", got)
	}
}
