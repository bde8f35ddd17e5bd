// One program that is every part of a Kubernetes node, and of what a control plane needs besides its API server, by the
// name under which it is called.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

func main() {
	os.Exit(cli.Run(command(filepath.Base(os.Args[0]))))
}

func command(name string) *cobra.Command {
	switch name {
	case "kube-controller-manager":
		return manager.NewControllerManagerCommand()
	case "kube-scheduler":
		return scheduler.NewSchedulerCommand()
	case "kubelet":
		return kubelet.NewKubeletCommand(context.Background())
	case "kube-proxy":
		return proxy.NewProxyCommand()
	}
	fmt.Fprintf(os.Stderr, "%s: call this as kube-controller-manager, kube-scheduler, kubelet or kube-proxy\n", name)
	os.Exit(2)
	return nil
}
