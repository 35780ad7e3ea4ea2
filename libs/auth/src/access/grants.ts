import { PERMISSIONS } from "@heddle/contracts/api/permission";
import { PROJECT_PERMISSIONS } from "@heddle/contracts/roles";
import { grants } from "../scopes.ts";

/**
 * What a caller may do, and where. Permissions in a project are only those over what projects have:
 * `*` in a project does not administer the cluster.
 */
export class Grants {
  readonly #cluster = new Set<string>();
  readonly #projects = new Map<string, Set<string>>();

  /** Adds permissions, in one project or in the whole cluster. */
  allow(permissions: readonly string[], project: string | undefined): this {
    if (project === undefined) for (const each of permissions) this.#cluster.add(each);
    else {
      const granted = PROJECT_PERMISSIONS.filter((each) => grants(permissions, each));
      if (granted.length === 0) return this;
      const known = this.#projects.get(project) ?? new Set();
      for (const each of granted) known.add(each);
      this.#projects.set(project, known);
    }
    return this;
  }

  get isEmpty(): boolean {
    return this.#cluster.size === 0 && this.#projects.size === 0;
  }

  /** The projects with permissions of their own; undefined where the whole cluster has some. */
  get projects(): string[] | undefined {
    return this.isOfCluster ? undefined : [...this.#projects.keys()];
  }

  /** Whether a permission over what projects have holds in all of them. */
  get isOfCluster(): boolean {
    return PROJECT_PERMISSIONS.some((each) => this.mayEverywhere(each));
  }

  /** Whether the permission holds in the whole cluster, whatever the project. */
  mayEverywhere(permission: string): boolean {
    return grants([...this.#cluster], permission);
  }

  /** All that it may do in a project, and with the cluster. */
  in(project: string): string[] {
    return [...this.#cluster, ...(this.#projects.get(project) ?? [])];
  }

  /** Whether the other grants the same. */
  equals(other: Grants): boolean {
    if (this.#projects.size !== other.#projects.size || !isSame(this.#cluster, other.#cluster)) {
      return false;
    }
    return [...this.#projects].every(([name, held]) => {
      const others = other.#projects.get(name);
      return others !== undefined && isSame(held, others);
    });
  }

  /** Whether the permission holds in the project. */
  may(permission: string, project: string): boolean {
    return grants(this.in(project), permission);
  }
}

function isSame(one: ReadonlySet<string>, other: ReadonlySet<string>): boolean {
  return one.size === other.size && [...one].every((each) => other.has(each));
}

/**
 * What a key's scopes grant: everywhere for an administrator that is bound to no project, else in
 * the key's project. Permissions of the cluster that scopes name hold everywhere too.
 */
export function grantsOfScopes(
  scopes: readonly string[],
  project: string | undefined,
  defaultProject: string,
): Grants {
  if (project === undefined && grants(scopes, "cluster:admin")) {
    return new Grants().allow(scopes, undefined);
  }
  const named = scopes.filter((scope) => scope !== "*");
  const ofCluster = PERMISSIONS.filter(
    (each) => !PROJECT_PERMISSIONS.includes(each) && grants(named, each),
  );
  return new Grants().allow(scopes, project ?? defaultProject).allow(ofCluster, undefined);
}
