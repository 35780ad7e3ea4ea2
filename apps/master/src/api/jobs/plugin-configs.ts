import { BoundedMap } from "@heddle/base/collections/bounded-map";
import type { SubmitJob } from "@heddle/contracts/api/job-spec";
import { type OwnConfigCheck, ownConfigCheck } from "@heddle/contracts/plugin-config";
import { parsePluginTraining } from "@heddle/contracts/training";
import type { ValidationFault } from "@heddle/contracts/validation";
import { executorOf } from "@heddle/control/jobs/records/task-request";
import { Inject } from "@nestjs/common";
import { NODE_DIRECTORY, type NodeDirectory } from "../../nodes/node-directory.ts";

/** Compiled schemas that are cached; the oldest is evicted. */
const MAX_CHECKS = 64;

/**
 * Validates configs against the schemas that attached workers report for their plugins' algorithms.
 * Schemas are data: no plugin code runs here. Without a schema, the trainer validates.
 */
export class PluginConfigs {
  readonly #directory: Pick<NodeDirectory, "nodes">;
  readonly #checks = new BoundedMap<string, OwnConfigCheck | undefined>(MAX_CHECKS);

  constructor(@Inject(NODE_DIRECTORY) directory: Pick<NodeDirectory, "nodes">) {
    this.#directory = directory;
  }

  /**
   * The faults for which no worker with the algorithm would accept the config, by the first schema.
   * None if a worker accepts it or reports no schema. The shared fields must be valid.
   */
  faults(spec: SubmitJob): readonly ValidationFault[] {
    const { algorithm, config } = spec;
    if (algorithm === undefined || executorOf(spec) !== "training") return [];
    const schemas = this.#schemasOf(algorithm);
    if (!schemas || schemas.size === 0) return [];
    const { own } = parsePluginTraining(algorithm, config);
    let first: readonly ValidationFault[] | undefined;
    for (const schema of schemas) {
      const faults = this.#check(schema)?.(own) ?? [];
      if (faults.length === 0) return [];
      first ??= faults;
    }
    return first ?? [];
  }

  /** Undefined if a worker has the algorithm and has not reported its schema. */
  #schemasOf(algorithm: string): ReadonlySet<string> | undefined {
    const schemas = new Set<string>();
    for (const { offer } of this.#directory.nodes()) {
      if (!offer?.algorithms.includes(algorithm)) continue;
      if (!Object.hasOwn(offer.algorithmSchemas, algorithm)) return undefined;
      schemas.add(offer.algorithmSchemas[algorithm] ?? "");
    }
    return schemas;
  }

  #check(schema: string): OwnConfigCheck | undefined {
    if (this.#checks.has(schema)) return this.#checks.get(schema);
    const check = ownConfigCheck(schema);
    this.#checks.set(schema, check);
    return check;
  }
}
