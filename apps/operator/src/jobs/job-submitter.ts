import type { Heddle } from "@heddle/client/heddle";
import type { JobSpec } from "@heddle/contracts/api/job-spec";
import type { JobRights, NamespaceAccess } from "../kubernetes/namespace-access.ts";
import { isDenied, isRefusedRequest, refusalText } from "../kubernetes/refusal.ts";

/** Submits the jobs of each namespace with the rights that it has. */
export class JobSubmitter {
  readonly #access: NamespaceAccess;
  readonly #connect: (rights: JobRights) => Pick<Heddle, "jobs">;

  constructor(access: NamespaceAccess, connect: (rights: JobRights) => Pick<Heddle, "jobs">) {
    this.#access = access;
    this.#connect = connect;
  }

  /** Resolves with why the job is refused, or with undefined once it is submitted. */
  async submit(namespace: string, spec: JobSpec): Promise<string | undefined> {
    const rights = this.#access.jobRights(namespace, spec.project);
    if (!rights) return this.#access.projectRefusal(namespace, spec.project);
    try {
      await this.#connect(rights).jobs.create({ ...spec, project: rights.project });
      return undefined;
    } catch (error) {
      if (rights.role !== undefined && isDenied(error)) {
        return `${refusalText(error)} ${this.#access.roleText(namespace, rights)}`;
      }
      if (!isRefusedRequest(error)) throw error;
      return refusalText(error);
    }
  }
}
