import { readFileSync } from "node:fs";
import { join } from "node:path";
import { rolldown } from "rolldown";
import { kubectl, untilFound } from "../kube-cluster.ts";

const DRIVER = "gpus.heddle.test";
const MAIN = "device-driver-main.ts";
const PROTOS = ["dra.proto", "registration.proto"];

export interface DeviceDriverOptions {
  /** Where Pods claim devices. */
  readonly namespace: string;
  /** The ResourceClaimTemplate that is made there, of one device. */
  readonly template: string;
  /** How many devices the node has. */
  readonly devices: number;
}

/** Devices for claims on a cluster's node, with a driver on the kubelet's genuine interface. */
export class DeviceDriver {
  readonly #namespace: string;

  private constructor(namespace: string) {
    this.#namespace = namespace;
  }

  /** Resolves when claims can be made. */
  static async start({ namespace, template, devices }: DeviceDriverOptions): Promise<DeviceDriver> {
    const own = `${namespace}-driver`;
    kubectl(["create", "namespace", own]);
    const files = PROTOS.map((name) => [
      name,
      readFileSync(join(import.meta.dirname, name), "utf8"),
    ]);
    const data = { ...Object.fromEntries(files), "main.mjs": await bundled() };
    apply({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: "driver", namespace: own },
      data,
    });
    const node = kubectl(["get", "nodes", "--output=jsonpath={.items[0].metadata.name}"]);
    apply(podOf(own, node));
    const driver = new DeviceDriver(own);
    await untilFound(
      "a registered driver",
      () => driver.#log().includes("registered") || undefined,
    );
    for (const object of devicesOf(node, devices)) apply(object);
    apply(templateOf(namespace, template));
    return driver;
  }

  /** How many claims the kubelet had prepared. */
  prepared(): number {
    return new Set(this.#log().match(/^prepared .*$/gm)).size;
  }

  stop(): void {
    kubectl(["delete", `resourceslice/${DRIVER}`, `deviceclass/${DRIVER}`]);
    kubectl(["delete", "namespace", this.#namespace, "--wait=false"]);
  }

  #log(): string {
    return kubectl(["--namespace", this.#namespace, "logs", "driver"]);
  }
}

function apply(object: object): void {
  kubectl(["apply", "--server-side", "--filename", "-"], JSON.stringify(object));
}

/** The driver and all that it imports: one module. */
async function bundled(): Promise<string> {
  const input = join(import.meta.dirname, MAIN);
  const bundle = await rolldown({ input, platform: "node", logLevel: "silent" });
  const { output } = await bundle.generate({ minify: true, codeSplitting: false });
  await bundle.close();
  return output[0].code;
}

function podOf(namespace: string, nodeName: string): object {
  const container = {
    name: "driver",
    image: "heddle/heddle:0.1.0",
    imagePullPolicy: "IfNotPresent",
    command: ["node", "/driver/main.mjs", DRIVER, "/driver"],
    securityContext: { runAsUser: 0 },
    volumeMounts: [
      { name: "driver", mountPath: "/driver" },
      { name: "kubelet", mountPath: "/var/lib/kubelet" },
    ],
  };
  const volumes = [
    { name: "driver", configMap: { name: "driver" } },
    { name: "kubelet", hostPath: { path: "/var/lib/kubelet", type: "Directory" } },
  ];
  const spec = { nodeName, enableServiceLinks: false, containers: [container], volumes };
  return { apiVersion: "v1", kind: "Pod", metadata: { name: "driver", namespace }, spec };
}

const API = "resource.k8s.io/v1";

function devicesOf(nodeName: string, count: number): readonly object[] {
  const metadata = { name: DRIVER };
  const expression = `device.driver == "${DRIVER}"`;
  const pool = { name: nodeName, generation: 1, resourceSliceCount: 1 };
  const devices = Array.from({ length: count }, (_, at) => ({ name: `gpu-${at}` }));
  return [
    {
      apiVersion: API,
      kind: "DeviceClass",
      metadata,
      spec: { selectors: [{ cel: { expression } }] },
    },
    {
      apiVersion: API,
      kind: "ResourceSlice",
      metadata,
      spec: { driver: DRIVER, nodeName, pool, devices },
    },
  ];
}

function templateOf(namespace: string, name: string): object {
  const requests = [{ name: "gpu", exactly: { deviceClassName: DRIVER } }];
  const spec = { spec: { devices: { requests } } };
  return { apiVersion: API, kind: "ResourceClaimTemplate", metadata: { name, namespace }, spec };
}
