import type { SubmitJob } from "@heddle/contracts/jobs";
import { type OwnConfigCheck, ownConfigCheck } from "@heddle/contracts/plugin-config";
import { parsePluginTraining } from "@heddle/contracts/training";
import type { ValidationFault } from "@heddle/contracts/validation";
import { executorOf } from "@heddle/control/jobs/records/task-request";
import type { NodeDirectory } from "../../nodes/node-directory.ts";

/** Schemas of all versions of all plugins that are kept ready; the oldest goes first. */
const MAX_CHECKS = 64;

/**
 * Holds configs against the schemas that attached workers have told of their plugins' algorithms. They
 * are data: no code of a plugin is here. A worker that has told none leaves it to its trainers.
 */
export class PluginConfigs {
  readonly #directory: Pick<NodeDirectory, "nodes">;
  readonly #checks = new Map<string, OwnConfigCheck | undefined>();

  constructor(directory: Pick<NodeDirectory, "nodes">) {
    this.#directory = directory;
  }

  /**
   * What no worker that has the algorithm would take, as the first of them says it; nothing where one
   * takes it or does not say. Of a config whose shared fields are well formed.
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

  /** Undefined where a worker has the algorithm and has not told its schema. */
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
    const oldest = this.#checks.keys().next();
    if (this.#checks.size >= MAX_CHECKS && !oldest.done) this.#checks.delete(oldest.value);
    const check = ownConfigCheck(schema);
    this.#checks.set(schema, check);
    return check;
  }
}
