import { AppError } from "@heddle/base/errors";
import { PROJECT_NAME } from "@heddle/contracts/roles";

const ALL = "*";
/** The project of jobs that name none; no namespace has it by its name alone. */
const DEFAULT_PROJECT = "default";
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
  /** What a namespace of the same name has only if it is listed. */
  readonly #given: ReadonlySet<string>;

  /**
   * `own` is the cluster's namespace, which has `default` unless it is listed. Any other one that is not has
   * the project of its own name, but for `default` and those of listed namespaces.
   */
  constructor(projects: ReadonlyMap<string, readonly string[]>, own: string | undefined) {
    this.#projects = projects;
    this.#own = own;
    this.#given = new Set([DEFAULT_PROJECT, ...[...projects.values()].flat()]);
  }

  /** Undefined where the namespace may not submit to the project. */
  jobRights(namespace: string, asked: string | undefined): JobRights | undefined {
    const projects = this.#projectsOf(namespace);
    const [first] = projects;
    const project = asked ?? (first === ALL ? DEFAULT_PROJECT : first);
    if (project === undefined) return undefined;
    if (projects.includes(ALL)) return { project };
    return projects.includes(project) ? { project, role: ROLE } : undefined;
  }

  /** Why a job that `jobRights` refuses is refused, and what to change. */
  projectRefusal(namespace: string, asked: string | undefined): string {
    const projects = this.#projectsOf(namespace);
    const fix = `the chart's value operator.projects.${namespace} names their projects`;
    if (projects.length === 0) {
      return `metadata.namespace: TrainingJobs of the namespace ${namespace} have no project, as others have the one of its name; ${fix}`;
    }
    return `spec.project: TrainingJobs of the namespace ${namespace} may be of ${projects.join(", ")}, not ${asked}; ${fix}`;
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
    const listed = this.#projects.get(namespace);
    if (listed) return listed;
    if (namespace === this.#own) return [DEFAULT_PROJECT];
    return this.#given.has(namespace) ? [] : [namespace];
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
