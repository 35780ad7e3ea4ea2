import "reflect-metadata";
import { AppError } from "@heddle/base/errors";
import { readFlagFile } from "@heddle/base/flag-file";
import { endProcess } from "@heddle/base/process/end-process";
import { Heddle } from "@heddle/client/heddle";
import type { Log } from "@heddle/observability/logger";
import { MetricsEndpoint } from "@heddle/observability/metrics-endpoint";
import { KubeConfig } from "@kubernetes/client-node";
import type { INestApplicationContext } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import { Registry } from "prom-client";
import { type PendingPodSettings, readPendingPodSettings } from "./capacity/pending-pod.ts";
import { commandFlags } from "./install/command-flags.ts";
import type { KueueSettings } from "./jobs/kueue-admission.ts";
import { readNamespaceProjects } from "./kubernetes/namespace-access.ts";
import { DemandReader } from "./metrics/demand.ts";
import { serveMetrics } from "./metrics/metrics-server.ts";
import { operatorModule, ResourceOperator } from "./operator.module.ts";
import type { OwnCluster } from "./settings/clusters.ts";

const NAMES = ["endpoints", "key-file", "namespaces", "health-port"] as const;
const OPTIONAL = [
  "projects",
  "cluster",
  "cluster-namespace",
  "metrics-port",
  "metrics-service",
  "pending-pods",
  "role-binding",
  "kueue",
  "kueue-gpus",
] as const;
const EXIT_MS = 15_000;
const ALL = "*";
const LABEL = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** Runs the controllers until SIGTERM. */
export async function runOperator(args: readonly string[], log: Log): Promise<void> {
  const flags = commandFlags<(typeof NAMES)[number] | (typeof OPTIONAL)[number]>(
    args,
    NAMES,
    OPTIONAL,
  );
  const wanted = "the file with an administrator's API key";
  const key = () => readFlagFile("--key-file", flags["key-file"], wanted).trim();
  key();
  const namespaces = namespacesOf(flags.namespaces);
  const projects = readNamespaceProjects(flags.projects);
  const own = ownCluster(flags.cluster, flags["cluster-namespace"]);
  const pending = pendingPods(flags["pending-pods"], own);
  const roleBinding = roleBindingOf(flags["role-binding"], namespaces);
  const kueue = kueueSettings(flags.kueue, flags["kueue-gpus"]);
  const endpoint = flags.endpoints.split(",").filter((each) => each !== "");
  const masters = { endpoint, auth: key };
  const app = await NestFactory.createApplicationContext(
    operatorModule({ masters, namespaces, projects, own, pending, roleBinding, kueue, log }),
    { logger: false, abortOnError: false },
  );
  const operator = app.get(ResourceOperator);
  const health = await MetricsEndpoint.listen(
    { port: portOf("health-port", flags["health-port"]), flag: "--health-port" },
    app.get(Registry),
    { isReady: () => operator.isReady },
  );
  const external = own && (await openMetrics(app, flags, own, log));
  const stop = async () => {
    log.info({}, "stopping");
    setTimeout(() => void endProcess(1), EXIT_MS).unref();
    external?.close();
    external?.closeAllConnections();
    await health.close();
    await app.close();
    await endProcess(0);
  };
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => void stop());
  log.info({ namespaces: flags.namespaces, endpoint, pid: process.pid }, "ready");
}

function namespacesOf(text: string): readonly (string | undefined)[] {
  if (text === ALL) return [undefined];
  const names = text.split(",").filter((name) => name !== "");
  const bad = names.find((name) => !LABEL.test(name));
  if (bad === undefined && names.length > 0) return [...new Set(names)];
  throw new AppError("invalid_value", `--namespaces takes names or ${ALL}, not ${bad ?? text}.`);
}

function roleBindingOf(
  name: string,
  namespaces: readonly (string | undefined)[],
): string | undefined {
  if (name === "") return undefined;
  if (/^[a-z0-9]([-a-z0-9.:]*[a-z0-9])?$/.test(name) && !namespaces.includes(undefined))
    return name;
  const message = `--role-binding takes the name of a RoleBinding in each of --namespaces, which names them then; not "${name}" with ${ALL}.`;
  throw new AppError("invalid_value", message);
}

function kueueSettings(version: string, gpuResource: string): KueueSettings | undefined {
  if (version === "" && gpuResource === "") return undefined;
  if (/^v\d+((alpha|beta)\d+)?$/.test(version)) return { version, gpuResource };
  throw new AppError(
    "invalid_value",
    `--kueue takes a version of Kueue's API, as v1beta2, not "${version}".`,
  );
}

function ownCluster(cluster: string, namespace: string): OwnCluster | undefined {
  if (cluster === "" && namespace === "") return undefined;
  if (LABEL.test(cluster) && LABEL.test(namespace)) return { cluster, namespace };
  const message = `--cluster and --cluster-namespace take names of Kubernetes, both or none of them, not "${cluster}" and "${namespace}".`;
  throw new AppError("invalid_value", message);
}

function pendingPods(file: string, own: OwnCluster | undefined): PendingPodSettings | undefined {
  if (file === "") return undefined;
  if (own) return readPendingPodSettings(file, process.env);
  throw new AppError("invalid_value", "--pending-pods needs --cluster: its name is on the Pods.");
}

/** For autoscalers, where a Service leads the API server here. */
async function openMetrics(
  app: INestApplicationContext,
  flags: Readonly<Record<"metrics-port" | "metrics-service", string>>,
  { namespace }: OwnCluster,
  log: Log,
) {
  const { "metrics-port": port, "metrics-service": name } = flags;
  if (port === "" && name === "") return undefined;
  if (!LABEL.test(name)) {
    const message = `--metrics-service takes the name of the Service of --metrics-port, not "${name}".`;
    throw new AppError("invalid_value", message);
  }
  const demand = new DemandReader(app.get(Heddle));
  return serveMetrics({
    config: app.get(KubeConfig),
    port: portOf("metrics-port", port),
    service: { name, namespace },
    demand: () => demand.read(),
    log,
  });
}

function portOf(flag: string, text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : -1;
  if (port >= 0 && port <= 65_535) return port;
  throw new AppError("invalid_value", `--${flag} takes 0 to 65535, not ${text}.`);
}
