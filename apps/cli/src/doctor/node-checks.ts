import type { Worker } from "@heddle/contracts/api/workers";
import { type Finding, Reporter } from "./finding.ts";

/** Each node as the cluster sees it: silent, refusing, of another version, with unhealthy devices. */
export function checkNodes(workers: readonly Worker[], version: string): Finding[] {
  if (!workers.some(({ kind }) => kind === "worker")) {
    const report = new Reporter("node", "cluster");
    return [report.warning("it has no worker: no job and no model runs", "Start a heddle-worker.")];
  }
  return workers.flatMap((worker) => {
    const faults = faultsOf(worker, version);
    return faults.length > 0
      ? faults
      : [new Reporter("node", worker.name).ok(`the ${worker.kind} is ${worker.status}`)];
  });
}

function faultsOf(worker: Worker, clusterVersion: string): Finding[] {
  const { name, status, silent_seconds: seconds, gpus, version } = worker;
  const report = new Reporter("node", name);
  const unhealthy = gpus.filter(({ fault }) => fault !== null);
  return [
    ...(status === "suspect" || status === "lost"
      ? [
          report.warning(
            `it is ${status}: silent for ${seconds} s`,
            `See whether ${name} runs and reaches the masters (its log, port, firewall).`,
          ),
        ]
      : []),
    ...(worker.refuses_leader
      ? [
          report.error(
            `it refuses the cluster: ${worker.refuses_leader}`,
            "Restart it with an empty data directory if it is to belong to this cluster.",
          ),
        ]
      : []),
    ...(worker.executor_fault
      ? [
          report.error(
            `it takes no tasks: ${worker.executor_fault}`,
            "Mend the plugin of its `--executor`; one that is refused needs a restart of the worker.",
          ),
        ]
      : []),
    ...(version !== null && version !== clusterVersion
      ? [
          report.warning(
            `it has version ${version}, the master ${clusterVersion}`,
            "Install the same version on every machine.",
          ),
        ]
      : []),
    ...(unhealthy.length > 0
      ? [
          new Reporter("gpu", name).warning(
            unhealthy.map(({ index, fault }) => `GPU ${index}: ${fault}`).join("; "),
            `Repair the device, then \`heddle workers resume ${name}\`.`,
          ),
        ]
      : []),
    ...(worker.task_isolation === "none"
      ? [
          new Reporter("isolation", name).warning(
            "its tasks could read its secrets",
            "Run it as root, or as another user on Linux 5.13 or newer with Landlock.",
          ),
        ]
      : []),
  ];
}
