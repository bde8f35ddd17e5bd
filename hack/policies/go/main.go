// What enforces NetworkPolicies in tests: kube-network-policies' controller, which decides about each new connection that
// is put into its queue. Its packets are of one network namespace, and the API server is in another.
package main

import (
	"context"
	"flag"
	"net"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/vishvananda/netns"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/kube-network-policies/pkg/networkpolicy"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the API server, and as whom to come to it")
	network := flag.String("api-server-network", "", "the file of the network namespace in which the API server is")
	node := flag.String("node", "", "the name of the node")
	queue := flag.Int("queue", 0, "the number of the queue")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *kubeconfig, *network, networkpolicy.Config{QueueID: *queue, NodeName: *node}); err != nil {
		klog.Fatal(err)
	}
}

func run(ctx context.Context, kubeconfig, network string, config networkpolicy.Config) error {
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	access.Dial = dialIn(network)
	client, err := kubernetes.NewForConfig(access)
	if err != nil {
		return err
	}
	watched := informers.NewSharedInformerFactory(client, 0)
	controller, err := networkpolicy.NewController(
		client,
		watched.Networking().V1().NetworkPolicies(),
		watched.Core().V1().Namespaces(),
		watched.Core().V1().Pods(),
		nil, nil, nil, nil,
		config,
	)
	if err != nil {
		return err
	}
	watched.Start(ctx.Done())
	return controller.Run(ctx)
}

// dialIn makes connections in another network namespace than the one in which the program runs.
func dialIn(network string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, protocol, address string) (connection net.Conn, err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			// Never unlocked: the thread ends with this goroutine, and nothing else runs on one that is elsewhere.
			runtime.LockOSThread()
			connection, err = dialFrom(ctx, network, protocol, address)
		}()
		<-done
		return connection, err
	}
}

func dialFrom(ctx context.Context, network, protocol, address string) (net.Conn, error) {
	there, err := netns.GetFromPath(network)
	if err != nil {
		return nil, err
	}
	defer there.Close()
	if err := netns.Set(there); err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, protocol, address)
}
