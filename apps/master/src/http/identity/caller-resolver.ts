import { Grants, grantsOfScopes } from "@heddle/auth/access/grants";
import type { TokenUser } from "@heddle/auth/identity/identity-adapter";
import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import type { Permission } from "@heddle/contracts/api/permission";
import {
  PROJECT_NAME,
  PROJECT_PERMISSIONS,
  SHIPPED_ADMIN_ROLES,
  SHIPPED_ROLES,
} from "@heddle/contracts/roles";
import { bindingKey } from "@heddle/control/access/records";
import type { ApiKeyRecord, ControlState } from "@heddle/control/state";
import { DEFAULT_PROJECT } from "../limits/call-reservation.ts";
import type { Caller } from "./caller.ts";

type AccessState = Pick<ControlState, "keys" | "roles" | "bindings" | "access">;

/** What a caller names for one call. */
export interface AskedRights {
  /** The project in which it acts. */
  readonly project?: string | undefined;
  /** The role whose rights in that project it has, as far as they are its own. */
  readonly role?: string | undefined;
}

/** Rotations that are followed back from a key to those that it replaced. */
const MAX_ROTATIONS = 1_000;

/** A batch outlives its call, and would run with all that the caller may do. */
const OUTLIVING: ReadonlySet<Permission> = new Set(["batches:write"]);

/**
 * Makes callers of verified keys and tokens. Roles and bindings are read for each call, so that a
 * change of them holds at once.
 */
export class CallerResolver {
  readonly #state: () => AccessState;
  /** The callers of keys without roles; records are replaced when they change. */
  readonly #ofScopes = new WeakMap<ApiKeyRecord, Caller>();

  constructor(state: () => AccessState) {
    this.#state = state;
  }

  ofKey(key: ApiKeyRecord, asked: AskedRights = {}): Caller {
    return this.#narrowed(this.#ofKey(key, asked.project), asked.role);
  }

  ofUser(user: TokenUser, asked: AskedRights = {}): Caller {
    return this.#narrowed(this.#ofUser(user, asked.project), asked.role);
  }

  #ofKey(key: ApiKeyRecord, asked: string | undefined): Caller {
    const known = this.#ofScopes.get(key) ?? this.#ofScopesOf(key);
    const bound = rolesBoundTo(this.#state(), key);
    if (asked === undefined && key.role === undefined && bound.length === 0) return known;
    const grants = this.#ownGrantsOf(key);
    for (const { role, project } of bound) this.#allow(grants, role, project);
    return inProject({ ...known, grants }, asked ?? known.project, asked);
  }

  /** What its scopes or its role grant: in its project alone, unless it administers the cluster. */
  #ownGrantsOf({ scopes, role, project }: ApiKeyRecord): Grants {
    if (role === undefined) return grantsOfScopes(scopes, project, DEFAULT_PROJECT);
    const permissions = permissionsOf(this.#state(), role, project);
    if (project !== undefined) return new Grants().allow(permissions, project);
    return grantsOfScopes(permissions, undefined, DEFAULT_PROJECT);
  }

  #ofUser(user: TokenUser, asked: string | undefined): Caller {
    const grants = new Grants();
    const { bindings, access } = this.#state();
    const subjects = [
      bindingKey("user", user.subject),
      ...user.groups.map((group) => bindingKey("group", group)),
    ];
    for (const subject of subjects) {
      for (const { role, project } of bindings.get(subject)?.roles ?? []) {
        this.#allow(grants, role, project);
      }
    }
    for (const role of user.roles) this.#allow(grants, role, undefined);
    const fallback = access.get("policy")?.defaultRole;
    if (grants.isEmpty && fallback !== undefined) this.#allow(grants, fallback, DEFAULT_PROJECT);
    const [only, ...others] = grants.projects ?? [];
    const own = only !== undefined && others.length === 0 ? only : DEFAULT_PROJECT;
    const { id, subject: name } = user;
    const fields = { kind: "user" as const, id, name, models: [], limits: {}, grants };
    return inProject(fields, asked ?? own, asked);
  }

  /** The caller with what the role grants in its project alone, if it may do that itself. */
  #narrowed(caller: Caller, role: string | undefined): Caller {
    if (role === undefined) return caller;
    const { project } = caller;
    const ofRole = permissionsOf(this.#state(), role, project);
    if (ofRole.length === 0) {
      const param = "X-Heddle-Role";
      const message = `No role has the name ${role}, which '${param}' names: GET /api/v1/roles lists them.`;
      throw new AppError("invalid_value", message, { param });
    }
    const permissions = PROJECT_PERMISSIONS.filter(
      (each) => !OUTLIVING.has(each) && grants(ofRole, each) && caller.grants.may(each, project),
    );
    const narrow = new Grants().allow(permissions, project);
    return { ...caller, grants: narrow, scopes: narrow.in(project) };
  }

  #ofScopesOf(key: ApiKeyRecord): Caller {
    const { id, name, models, limits, rotatedFrom, project, deterministic, service } = key;
    const grants = grantsOfScopes(key.scopes, project, DEFAULT_PROJECT);
    const fields = {
      kind: "key" as const,
      id,
      name,
      models,
      limits,
      rotatedFrom,
      grants,
      deterministic,
      service,
    };
    const caller = inProject(fields, project ?? DEFAULT_PROJECT, undefined);
    this.#ofScopes.set(key, caller);
    return caller;
  }

  #allow(grants: Grants, role: string, project: string | undefined): void {
    grants.allow(permissionsOf(this.#state(), role, project), project);
  }
}

/** The roles bound to the key, to one that it replaced, or to its service account. */
export function rolesBoundTo(
  { bindings, keys }: Pick<AccessState, "bindings" | "keys">,
  { id, rotatedFrom, service }: Pick<ApiKeyRecord, "id" | "rotatedFrom" | "service">,
) {
  if (bindings.size === 0) return [];
  const roles = [...(bindings.get(bindingKey("key", id))?.roles ?? [])];
  if (service !== undefined) {
    roles.push(...(bindings.get(bindingKey("service", service))?.roles ?? []));
  }
  let before = rotatedFrom;
  for (let i = 0; i < MAX_ROTATIONS && before !== undefined; i++) {
    roles.push(...(bindings.get(bindingKey("key", before))?.roles ?? []));
    before = keys.get(before)?.rotatedFrom;
  }
  return roles;
}

/** What a role grants where it is bound; nothing if there is no such role. */
export function permissionsOf(
  { roles, access }: Pick<AccessState, "roles" | "access">,
  role: string,
  project: string | undefined,
): readonly string[] {
  const admins = access.get("policy")?.adminRoles ?? SHIPPED_ADMIN_ROLES;
  const own = roles.get(role)?.permissions;
  const shipped = Object.hasOwn(SHIPPED_ROLES, role)
    ? SHIPPED_ROLES[role as keyof typeof SHIPPED_ROLES].permissions
    : undefined;
  const permissions = shipped ?? own;
  if (permissions === undefined) return [];
  return project === undefined && admins.includes(role) ? ["*"] : permissions;
}

/** The caller in a project; one that it asks for must be its own. */
function inProject(
  fields: Omit<Caller, "project" | "scopes">,
  project: string,
  asked: string | undefined,
): Caller {
  const { grants } = fields;
  if (asked !== undefined) checkAsked(grants, asked);
  return { ...fields, project, scopes: grants.in(project) };
}

/** The same refusal for projects that do not exist. */
function checkAsked(grants: Grants, asked: string): void {
  const param = "X-Heddle-Project";
  if (!PROJECT_NAME.test(asked)) {
    const message = `Invalid value for the header '${param}': expected 1 to 63 of a-z, 0-9, \`.\`, \`_\` and \`-\`.`;
    throw new AppError("invalid_value", message, { param });
  }
  if (grants.isOfCluster || grants.projects?.includes(asked)) return;
  const message = `The caller has no permission in the project ${asked}, which '${param}' names.`;
  throw new AppError("permission_denied", message, { param });
}
