// One scenario with the Go client: `interop SCENARIO OPTIONS`, where OPTIONS is a JSON object with at least `addresses`.
// What was seen goes to standard output as one JSON object; a line "now" says that the scenario waits for a line on
// standard input. INTEROP_USER, INTEROP_PASSWORD, INTEROP_TLS_CA, INTEROP_TLS_CERT and INTEROP_TLS_KEY stand for
// options that are not given.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/hazelcast/hazelcast-go-client"
	"github.com/hazelcast/hazelcast-go-client/logger"
	"github.com/hazelcast/hazelcast-go-client/nearcache"
	"github.com/hazelcast/hazelcast-go-client/types"
)

// Options of a run.
type Options struct {
	Addresses []string `json:"addresses"`
	Cluster   string   `json:"cluster"`
	Map       string   `json:"map"`
	Unisocket bool     `json:"unisocket"`
	Near      bool     `json:"near"`
	Username  string   `json:"username"`
	Password  string   `json:"password"`
	CA        string   `json:"ca"`
	Cert      string   `json:"cert"`
	Key       string   `json:"key"`
	PatienceS int      `json:"patience_s"`
}

var lines = bufio.NewReader(os.Stdin)

func orElse(given, variable string) string {
	if given != "" {
		return given
	}
	return os.Getenv(variable)
}

func connect(ctx context.Context, options Options) (*hazelcast.Client, error) {
	config := hazelcast.NewConfig()
	config.Cluster.Name = options.Cluster
	config.Cluster.Network.SetAddresses(options.Addresses...)
	config.Cluster.Unisocket = options.Unisocket
	config.Cluster.ConnectionStrategy.Timeout = types.Duration(time.Duration(options.PatienceS) * time.Second)
	config.Logger.Level = logger.ErrorLevel
	credentials := &config.Cluster.Security.Credentials
	credentials.Username = orElse(options.Username, "INTEROP_USER")
	credentials.Password = orElse(options.Password, "INTEROP_PASSWORD")
	if ca := orElse(options.CA, "INTEROP_TLS_CA"); ca != "" {
		ssl := &config.Cluster.Network.SSL
		ssl.Enabled = true
		ssl.ServerName = "127.0.0.1"
		if err := ssl.SetCAPath(ca); err != nil {
			return nil, err
		}
		if cert := orElse(options.Cert, "INTEROP_TLS_CERT"); cert != "" {
			if err := ssl.AddClientCertAndKeyPath(cert, orElse(options.Key, "INTEROP_TLS_KEY")); err != nil {
				return nil, err
			}
		}
	}
	if options.Near {
		config.AddNearCache(nearcache.Config{Name: options.Map})
	}
	return hazelcast.StartNewClientWithConfig(ctx, config)
}

func until(question func() bool) bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if question() {
			return true
		}
	}
	return false
}

func say(seen interface{}) {
	text, err := json.Marshal(seen)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func main() {
	options := Options{Cluster: "dev", PatienceS: 20}
	if err := json.Unmarshal([]byte(os.Args[2]), &options); err != nil {
		panic(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 150*time.Second)
	defer stop()
	client, err := connect(ctx, options)
	if err != nil {
		say(map[string]string{"refused": err.Error()})
		return
	}
	scenarios := map[string]func(context.Context, *hazelcast.Client, Options) interface{}{
		"calls": calls, "faults": faults, "near": near, "login": login,
	}
	say(map[string]interface{}{"seen": scenarios[os.Args[1]](ctx, client, options)})
	client.Shutdown(ctx)
}

func login(ctx context.Context, client *hazelcast.Client, options Options) interface{} {
	flights, err := client.GetMap(ctx, "flights")
	if err != nil {
		return err.Error()
	}
	if err := flights.Set(ctx, "k", "v"); err != nil {
		return err.Error()
	}
	value, _ := flights.Get(ctx, "k")
	return value
}
