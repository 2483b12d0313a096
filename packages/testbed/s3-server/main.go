// The S3 server of the tests: versitygw with its posix backend alone, which builds in a third of the time of the whole program.
// It takes the arguments of `versitygw --quiet --port ADDRESS posix --sidecar FOLDER BUCKETS`.
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3api"
	"github.com/versity/versitygw/s3api/middlewares"
)

func main() {
	gateway := flag.NewFlagSet("versitygw", flag.ExitOnError)
	gateway.Bool("quiet", true, "")
	port := gateway.String("port", "127.0.0.1:7070", "")
	fail(gateway.Parse(os.Args[1:]))
	folder := flag.NewFlagSet("posix", flag.ExitOnError)
	sidecar := folder.String("sidecar", "", "")
	fail(folder.Parse(gateway.Args()[1:]))

	attributes, err := meta.NewSideCar(*sidecar)
	fail(err)
	backend, err := posix.New(folder.Arg(0), attributes, posix.PosixOpts{SideCarDir: *sidecar})
	fail(err)
	root := middlewares.RootUserConfig{Access: os.Getenv("ROOT_ACCESS_KEY"), Secret: os.Getenv("ROOT_SECRET_KEY")}
	users := auth.NewIAMServiceSingle(auth.Account{Access: root.Access, Secret: root.Secret, Role: auth.RoleAdmin})
	server, err := s3api.New(backend, root, "us-east-1", users, nil, nil, nil, nil,
		s3api.WithQuiet(), s3api.WithConcurrencyLimiter(1000, 1000), s3api.WithMpMaxParts(10000))
	fail(err)
	fail(server.ServeMultiPort([]string{*port}))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
