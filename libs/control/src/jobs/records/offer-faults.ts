import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { environmentOf } from "@heddle/contracts/training";
import type { JobsState, NodeOffer } from "./records.ts";
import type { SpecFault } from "./spec-faults.ts";
import { executorOf, runsAlgorithm } from "./task-request.ts";

/**
 * What the job names and no worker has, including lost and drained workers, which may return. None
 * where no worker has its executor, or one that has it has not reported its offer.
 */
export function offerFaults(spec: SubmitJob, nodes: JobsState["nodes"]): SpecFault[] {
  const { algorithm } = spec;
  if (algorithm === undefined || !runsAlgorithm(spec)) return [];
  const offers = [...nodes.values()].map(({ offer }) => offer);
  const trainers = offers.filter(({ executors }) => executors.includes(executorOf(spec)));
  const algorithms = offeredBy(trainers, (offer) => offer.algorithms);
  if (algorithms && !algorithms.has(algorithm)) {
    const detail = notOffered("algorithm", algorithm, algorithms);
    return [{ param: "algorithm", detail, reads: READS }];
  }
  const environment = environmentOf(algorithm, spec.config);
  const environments = offeredBy(trainers, (offer) => offer.environments);
  if (!environment || !environments || environments.has(environment.name)) return [];
  const detail = notOffered("environment", environment.name, environments);
  return [{ param: `config.${environment.field}`, detail, reads: READS }];
}

const READS = ["algorithm", "command", "container_image", "config"];

/** Undefined if some worker has not reported it, or none exists. */
function offeredBy(
  trainers: readonly NodeOffer[],
  namesOf: (offer: NodeOffer) => readonly string[] | undefined,
): ReadonlySet<string> | undefined {
  const offered = new Set<string>();
  for (const trainer of trainers) {
    const names = namesOf(trainer);
    if (!names) return undefined;
    for (const name of names) offered.add(name);
  }
  return offered.size > 0 ? offered : undefined;
}

function notOffered(kind: string, name: string, offered: ReadonlySet<string>): string {
  const list = [...offered].sort().join(", ");
  return `no worker has the ${kind} ${name}; the workers have: ${list}`;
}
