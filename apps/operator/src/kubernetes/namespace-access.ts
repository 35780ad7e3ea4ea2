import { AppError } from "@heddle/base/errors";
import { PROJECT_NAME } from "@heddle/contracts/roles";

const ALL = "*";
const DEFAULT_PROJECTS = ["default"];
/** What jobs of a namespace may do in its projects. */
const ROLE = "developer";

/** For which project a job is submitted, and with which role's rights there; none: the operator's own. */
export interface JobRights {
  readonly project: string;
  readonly role?: string | undefined;
}

/**
 * What objects of each namespace may do. The operator is an administrator of the cluster; who may create
 * objects in a namespace need not be one.
 */
export class NamespaceAccess {
  readonly #projects: ReadonlyMap<string, readonly string[]>;
  readonly #own: string | undefined;

  /** `own` is the cluster's namespace; a namespace without projects has `default`. */
  constructor(projects: ReadonlyMap<string, readonly string[]>, own: string | undefined) {
    this.#projects = projects;
    this.#own = own;
  }

  /** Undefined where the namespace may not submit to the project. */
  jobRights(namespace: string, asked: string | undefined): JobRights | undefined {
    const projects = this.#projectsOf(namespace);
    const [first = ALL] = projects;
    const project = asked ?? (first === ALL ? "default" : first);
    if (projects.includes(ALL)) return { project };
    return projects.includes(project) ? { project, role: ROLE } : undefined;
  }

  /** Why a job that `jobRights` refuses is refused, and what to change. */
  projectRefusal(namespace: string, asked: string | undefined): string {
    const projects = this.#projectsOf(namespace).join(", ");
    return `spec.project: TrainingJobs of the namespace ${namespace} may be of ${projects}, not ${asked}; the chart's value operator.projects.${namespace} names their projects`;
  }

  /** What says the rights of a refused job. */
  roleText(namespace: string, { project, role }: JobRights): string {
    return `TrainingJobs of the namespace ${namespace} have the rights of a ${role} in the project ${project}; the chart's value operator.projects.${namespace} of ["${ALL}"] gives them all`;
  }

  /** Why objects of a namespace may not change what all projects have; undefined where they may. */
  clusterRefusal(namespace: string, kind: string): string | undefined {
    if (namespace === this.#own || this.#projectsOf(namespace).includes(ALL)) return undefined;
    const place = this.#own === undefined ? "" : `create it in the namespace ${this.#own}, or `;
    return `metadata.namespace: a ${kind} is of the whole cluster, which the namespace ${namespace} may not change; ${place}set the chart's value operator.projects.${namespace} to ["${ALL}"]`;
  }

  #projectsOf(namespace: string): readonly string[] {
    return this.#projects.get(namespace) ?? DEFAULT_PROJECTS;
  }
}

/** Reads `NAMESPACE=PROJECT+PROJECT,...`; throws an AppError that names what is wrong. */
export function readNamespaceProjects(text: string): ReadonlyMap<string, readonly string[]> {
  const entries = text.split(",").filter((entry) => entry !== "");
  return new Map(
    entries.map((entry) => {
      const [namespace = "", list = ""] = entry.split("=", 2);
      const projects = list.split("+");
      const isGood = projects.every((name) => name === ALL || PROJECT_NAME.test(name));
      if (namespace !== "" && isGood) return [namespace, projects] as const;
      const message = `--projects takes NAMESPACE=PROJECT+PROJECT,... with ${ALL} for all projects, not "${entry}".`;
      throw new AppError("invalid_value", message);
    }),
  );
}
